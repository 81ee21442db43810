package manifest

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Expr is an integer expression of a launch rule:
//
//	expr    = term { ( "+" | "-" ) term }
//	term    = factor { ( "*" | "/" ) factor }
//	factor  = integer | name | function "(" expr { "," expr } ")" | "(" expr ")"
//	integer = digit { digit }
//	name    = word { "." word }
//	word    = letter { letter | digit | "_" }, letters being a to z
//
// with blanks anywhere between. Values are 64-bit integers; one that does not
// fit is an error. Division is of a dividend that is not negative by a positive
// divisor, and rounds down; anything else is an error. The functions:
//
//	ceildiv(a, b)   a / b, rounded up
//	roundup(a, b)   ceildiv(a, b) * b
//	min(a, b, …)    the least
//	max(a, b, …)    the greatest
//	if(c, a, b)     a where c is not 0, else b; the other is not evaluated
type Expr struct {
	Op    string // "+", "-", "*", "/", a function, "name" or "integer"
	Args  []*Expr
	Name  string // of "name"
	Value int64  // of "integer"
}

// Bounds on an expression, so that a hostile one costs little.
const (
	maxExprBytes = 512
	maxExprDepth = 32
)

// functions are the functions and how many arguments they take, at least and
// at most.
var functions = map[string][2]int{
	"ceildiv": {2, 2}, "roundup": {2, 2}, "min": {1, 16}, "max": {1, 16}, "if": {3, 3},
}

// ParseExpr reads an expression.
func ParseExpr(text string) (*Expr, error) {
	if len(text) > maxExprBytes {
		return nil, fmt.Errorf("the expression has %d bytes, must have at most %d", len(text), maxExprBytes)
	}
	p := exprParser{text: text}
	e, err := p.expr(0)
	if err == nil && p.peek() != 0 {
		err = p.errorf("an operator")
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return e, nil
}

type exprParser struct {
	text string
	at   int
}

// peek skips blanks and returns the next byte, 0 at the end.
func (p *exprParser) peek() byte {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *exprParser) errorf(want string) error {
	if p.peek() == 0 {
		return fmt.Errorf("it ends where %s must follow", want)
	}
	return fmt.Errorf("column %d: was %q, must be %s", p.at+1, p.text[p.at], want)
}

func (p *exprParser) expr(depth int) (*Expr, error) { return p.chain(depth, "+-", p.term) }
func (p *exprParser) term(depth int) (*Expr, error) { return p.chain(depth, "*/", p.factor) }

// chain reads operands between operators of one rank, from left to right.
func (p *exprParser) chain(depth int, operators string, operand func(int) (*Expr, error)) (*Expr, error) {
	left, err := operand(depth)
	for n := 0; err == nil; n++ {
		op := p.peek()
		if op == 0 || strings.IndexByte(operators, op) < 0 {
			return left, nil
		}
		if n == maxExprDepth {
			return nil, fmt.Errorf("column %d: more than %d operators in a row", p.at+1, maxExprDepth)
		}
		p.at++
		var right *Expr
		right, err = operand(depth)
		left = &Expr{Op: string(op), Args: []*Expr{left, right}}
	}
	return nil, err
}

func (p *exprParser) factor(depth int) (*Expr, error) {
	if depth == maxExprDepth {
		return nil, fmt.Errorf("column %d: more than %d levels of brackets", p.at+1, maxExprDepth)
	}
	c := p.peek()
	begin := p.at
	switch {
	case c == '(':
		p.at++
		e, err := p.expr(depth + 1)
		if err != nil {
			return nil, err
		}
		return e, p.expect(')')
	case c >= '0' && c <= '9':
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		v, err := strconv.ParseInt(p.text[begin:p.at], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("column %d: %s does not fit 64 bits", begin+1, p.text[begin:p.at])
		}
		return &Expr{Op: "integer", Value: v}, nil
	case c >= 'a' && c <= 'z':
		for p.at < len(p.text) && (isWord(p.text[p.at]) || p.text[p.at] == '.') {
			p.at++
		}
		name := p.text[begin:p.at]
		if p.peek() == '(' {
			return p.call(name, begin, depth)
		}
		if !dottedName(name) {
			return nil, fmt.Errorf("column %d: %q is no name", begin+1, name)
		}
		return &Expr{Op: "name", Name: name}, nil
	}
	return nil, p.errorf("a number, a name or a bracket")
}

func (p *exprParser) call(name string, begin, depth int) (*Expr, error) {
	arity, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("column %d: there is no function %q; there are ceildiv, roundup, min, max and if", begin+1, name)
	}
	e := &Expr{Op: name}
	for {
		p.at++ // the bracket or the comma
		arg, err := p.expr(depth + 1)
		if err != nil {
			return nil, err
		}
		e.Args = append(e.Args, arg)
		if p.peek() != ',' {
			break
		}
	}
	if n := len(e.Args); n < arity[0] || n > arity[1] {
		return nil, fmt.Errorf("column %d: %s has %d arguments, must have %d to %d", begin+1, name, n, arity[0], arity[1])
	}
	return e, p.expect(')')
}

func (p *exprParser) expect(c byte) error {
	if p.peek() != c {
		return p.errorf(fmt.Sprintf("%q", c))
	}
	p.at++
	return nil
}

func isWord(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' }

// plainName reports whether s is one word that begins with a letter.
func plainName(s string) bool {
	if s == "" || len(s) > maxNameBytes || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if !isWord(s[i]) {
			return false
		}
	}
	return true
}

// dottedName reports whether s is words between dots.
func dottedName(s string) bool {
	for word := range strings.SplitSeq(s, ".") {
		if !plainName(word) {
			return false
		}
	}
	return true
}

// Names calls f with every name in the expression, in the order of the text.
func (e *Expr) Names(f func(name string)) {
	if e.Op == "name" {
		f(e.Name)
	}
	for _, a := range e.Args {
		a.Names(f)
	}
}

// Eval returns the expression's value; value gives that of a name. It allocates
// nothing unless it fails.
func (e *Expr) Eval(value func(name string) (int64, bool)) (int64, error) {
	switch e.Op {
	case "integer":
		return e.Value, nil
	case "name":
		v, ok := value(e.Name)
		if !ok {
			return 0, fmt.Errorf("%q is not known", e.Name)
		}
		return v, nil
	case "if":
		c, err := e.Args[0].Eval(value)
		if err != nil {
			return 0, err
		}
		if c != 0 {
			return e.Args[1].Eval(value)
		}
		return e.Args[2].Eval(value)
	}
	result, err := e.Args[0].Eval(value)
	for _, a := range e.Args[1:] {
		if err != nil {
			break
		}
		var next int64
		if next, err = a.Eval(value); err == nil {
			result, err = e.apply(result, next)
		}
	}
	return result, err
}

var errRange = errors.New("the result does not fit 64 bits")

func (e *Expr) apply(a, b int64) (int64, error) {
	switch e.Op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return c, nil
		}
		return 0, errRange
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return c, nil
		}
		return 0, errRange
	case "*":
		return multiply(a, b)
	case "min":
		return min(a, b), nil
	case "max":
		return max(a, b), nil
	}
	if a < 0 || b <= 0 {
		return 0, fmt.Errorf("%d is divided by %d: the one must be at least 0, the other more", a, b)
	}
	q := a / b
	if e.Op != "/" && a%b > 0 {
		q++
	}
	if e.Op == "roundup" {
		return multiply(q, b)
	}
	return q, nil
}

func multiply(a, b int64) (int64, error) {
	negative := (a < 0) != (b < 0)
	high, low := bits.Mul64(magnitude(a), magnitude(b))
	switch {
	case high != 0 || low > math.MaxInt64: // −2⁶³ is given up
		return 0, errRange
	case negative:
		return -int64(low), nil
	}
	return int64(low), nil
}

func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}
