package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// Error is a mistake in PTX text. Line and Col (in bytes) count from 1.
type Error struct {
	File      string
	Line, Col int
	Msg       string
}

// Error returns file:line:col: message.
func (e *Error) Error() string { return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg) }

// scanner walks PTX text. Its methods panic with *Error, which Parse recovers.
type scanner struct {
	file  string
	text  string
	pos   int
	line  int // of pos, from 1
	start int // offset at which that line starts

	// comment receives every comment that space skips, with its line.
	comment func(text string, line int)
}

func (s *scanner) fail(format string, args ...any) { s.failAt(s.line, s.col(), format, args...) }

func (s *scanner) failAt(line, col int, format string, args ...any) {
	panic(&Error{s.file, line, col, fmt.Sprintf(format, args...)})
}

func (s *scanner) col() int { return s.pos - s.start + 1 }

// skipBlock skips what is left of a block, its closing brace included.
func (s *scanner) skipBlock() {
	begin, line, col := s.pos, s.line, s.col()
	through := func(opening, closing string) { // the end of a comment or a string
		rest := s.text[s.pos+len(opening):]
		if i := strings.Index(rest, closing); i >= 0 {
			s.pos += len(opening) + i + len(closing)
		} else {
			s.pos = len(s.text)
		}
	}
	for depth := 1; depth > 0; {
		i := strings.IndexAny(s.text[s.pos:], `{}"/`)
		if i < 0 {
			s.failAt(line, col, "no closing brace follows")
		}
		s.pos += i
		switch rest := s.text[s.pos:]; {
		case strings.HasPrefix(rest, "//"):
			through("//", "\n")
		case strings.HasPrefix(rest, "/*"):
			through("/*", "*/")
		case rest[0] == '"':
			through(`"`, `"`)
		default:
			switch rest[0] {
			case '{':
				depth++
			case '}':
				depth--
			}
			s.pos++
		}
	}
	skipped := s.text[begin:s.pos]
	if n := strings.Count(skipped, "\n"); n > 0 {
		s.line += n
		s.start = begin + strings.LastIndexByte(skipped, '\n') + 1
	}
}

// space skips white space and comments.
func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '\n':
			s.pos++
			s.line++
			s.start = s.pos
		case c == ' ' || c == '\t' || c == '\r':
			s.pos++
		case strings.HasPrefix(s.text[s.pos:], "//"):
			end := strings.IndexByte(s.text[s.pos:], '\n')
			if end < 0 {
				end = len(s.text) - s.pos
			}
			c := s.text[s.pos+2 : s.pos+end]
			c = strings.TrimRight(strings.TrimPrefix(c, " "), " \t\r")
			s.comment(c, s.line)
			s.pos += end
		default:
			return
		}
	}
}

// end reports whether nothing but space is left.
func (s *scanner) end() bool {
	s.space()
	return s.pos == len(s.text)
}

// peek returns the next byte after space, 0 at the end.
func (s *scanner) peek() byte {
	if s.end() {
		return 0
	}
	return s.text[s.pos]
}

// accept skips c when it comes next.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) expect(c byte) {
	if !s.accept(c) {
		s.fail("expected %q, found %s", c, s.found())
	}
}

// found describes what comes next, for messages.
func (s *scanner) found() string {
	if s.pos == len(s.text) {
		return "the end of the text"
	}
	end := s.pos
	for end < len(s.text) && word(s.text[end]) {
		end++
	}
	if end == s.pos {
		end++
	}
	const shown = 60 // a number may have a million digits
	if end-s.pos > shown {
		return strconv.Quote(s.text[s.pos:s.pos+shown]) + "…"
	}
	return strconv.Quote(s.text[s.pos:end])
}

// word reports whether c belongs to names and numbers.
func word(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '$' || c == '%'
}

// take returns the longest run of word bytes; "" when there is none.
func (s *scanner) take() string {
	s.space()
	start := s.pos
	for s.pos < len(s.text) && word(s.text[s.pos]) {
		s.pos++
	}
	return s.text[start:s.pos]
}

// name returns an identifier. A percent sign can only come first.
func (s *scanner) name() string {
	s.space()
	line, col := s.line, s.col()
	n := s.take()
	if n == "" || '0' <= n[0] && n[0] <= '9' {
		s.pos -= len(n)
		s.fail("expected a name, found %s", s.found())
	}
	if strings.LastIndexByte(n, '%') > 0 || n == "%" || n == "$" {
		s.failAt(line, col, "malformed name %q", n)
	}
	return n
}

// directive returns the next word when a dot precedes it.
func (s *scanner) directive() (string, bool) {
	if s.peek() != '.' {
		return "", false
	}
	start := s.pos
	s.pos++
	n := s.pos
	for s.pos < len(s.text) && (word(s.text[s.pos]) || s.colons()) {
		s.pos++
	}
	if s.pos == n {
		s.pos = start
		s.fail("a dot without a word")
	}
	return s.text[n:s.pos], true
}

// colons reports whether pos is at the first or second colon of x::y.
func (s *scanner) colons() bool {
	t := s.text
	return t[s.pos] == ':' && (s.pos+1 < len(t) && t[s.pos+1] == ':' || t[s.pos-1] == ':')
}

// count returns a number that is not negative.
func (s *scanner) count() int {
	s.space()
	line, col := s.line, s.col()
	w := s.take()
	n, err := strconv.ParseUint(w, 10, 31)
	if err != nil {
		s.pos -= len(w)
		s.failAt(line, col, "expected a number, found %s", s.found())
	}
	return int(n)
}

// integer returns an integer constant as PTX spells them: decimal, 0x, 0b or
// octal with a leading 0, a minus sign, a suffix U. 64-bit patterns wrap.
func (s *scanner) integer() int64 {
	s.space()
	line, col := s.line, s.col()
	negative := s.accept('-')
	w := s.take()
	n, err := strconv.ParseUint(strings.TrimSuffix(w, "U"), 0, 64)
	if err != nil || strings.Contains(w, "_") || strings.HasPrefix(w, "0o") || strings.HasPrefix(w, "0O") {
		s.pos -= len(w)
		s.failAt(line, col, "expected a constant, found %s", s.found())
	}
	if negative {
		return -int64(n)
	}
	return int64(n)
}

// quoted returns a string constant.
func (s *scanner) quoted() string {
	s.expect('"')
	var b strings.Builder
	for s.pos < len(s.text) && s.text[s.pos] != '\n' {
		c := s.text[s.pos]
		s.pos++
		switch c {
		case '"':
			return b.String()
		case '\\':
			if s.pos == len(s.text) {
				s.fail("unterminated string")
			}
			c = s.text[s.pos]
			s.pos++
			switch c {
			case 'n':
				c = '\n'
			case '\\', '"':
			default:
				s.fail("unknown escape \\%c", c)
			}
		}
		b.WriteByte(c)
	}
	s.fail("unterminated string")
	return ""
}
