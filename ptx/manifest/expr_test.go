package manifest

import (
	"math"
	"strings"
	"testing"
)

func TestExpr(t *testing.T) {
	values := map[string]int64{"a": 7, "b": 3, "zero": 0, "t.stride.x": 40, "big": math.MaxInt64}
	lookup := func(name string) (int64, bool) { v, ok := values[name]; return v, ok }
	for text, want := range map[string]int64{
		"42": 42, " a ": 7, "a+b*2": 13, "(a+b)*2": 20, "a-b-1": 3, "a/b": 2, "24/4/3": 2, "ceildiv(a, b)": 3, "ceildiv(6,3)": 2, "ceildiv(0,3)": 0,
		"roundup(a, 4)": 8, "roundup(8,4)": 8, "min(a)": 7, "min(a,b,5)": 3, "max(1,b,a)": 7, "if(zero, 1/zero, 5)": 5, "if(a, b, 1/zero)": 3, "if(zero-a,1,2)": 1,
		"t.stride.x / 4": 10, "b - a": -4, "(b-a)*(b-a)": 16, "(b-a)*a": -28, "big - 1 + 1": math.MaxInt64, "9223372036854775807": math.MaxInt64,
	} {
		e, err := ParseExpr(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := e.Eval(lookup); err != nil || got != want {
			t.Errorf("%s = %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "it ends where a number, a name or a bracket must follow", "a+": "must follow", "a b": `column 3: was 'b', must be an operator`, "A": "was 'A'",
		"(a": `it ends where ')' must follow`, "f(a)": `there is no function "f"`, "min()": "was ')'", "ceildiv(a)": "has 1 arguments, must have 2 to 2",
		"9223372036854775808": "does not fit 64 bits", "t..x": `"t..x" is no name`, "t.": "is no name", "-a": "was '-'", "a % b": "was '%'",
		strings.Repeat("(", 100): "more than 32 levels", "1" + strings.Repeat("+1", 100): "more than 32 operators", strings.Repeat("1", 600): "must have at most 512",
		strings.Repeat("a", 65): "is no name", "if(1,2)": "has 2 arguments",
	} {
		if _, err := ParseExpr(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"unknown": `"unknown" is not known`, "a/zero": "7 is divided by 0", "(b-a)/b": "-4 is divided by 3", "big+1": "does not fit", "big*2": "does not fit",
		"0-big-2": "does not fit", "roundup(big, 2)": "does not fit", "(0-2)*big": "does not fit", "if(unknown, 1, 2)": "not known",
	} {
		e, err := ParseExpr(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got, err := e.Eval(lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %d, %v, want %s", text, got, err, want)
		}
	}
}

// FuzzExpr: whatever the text, parsing and evaluating it ends soon, and what it
// gives is the same each time.
func FuzzExpr(f *testing.F) {
	for _, text := range []string{"roundup(4 * (parts + 1), 256)", "if(a, b / c, max(1, a.b))", "((((1))))", "9223372036854775807 * 2", "a/(b-c)"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseExpr(text)
		if err != nil {
			return
		}
		value := func(name string) (int64, bool) { return int64(len(name)) - 2, len(name) < 5 }
		a, errA := e.Eval(value)
		b, errB := e.Eval(value)
		if a != b || (errA == nil) != (errB == nil) {
			t.Errorf("%q: %d, %v and then %d, %v", text, a, errA, b, errB)
		}
	})
}
