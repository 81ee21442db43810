package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestPlan: the choices that are known, for programs and for people.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		args   string
		choice string
		says   []string // in the table
	}{
		{"-new 64 -prefix 32768", "absorb", []string{"1273.6", "586.8", "128 heads"}},
		{"-new 512 -prefix 32768", "expand", []string{"2501.8", "4726.7", "the workspace holds all expanded tokens"}},
		{"-new 512 -prefix 32768 -workspace 536870912", "expand-chunked", []string{"expand-chunked (5 of 6656 tokens)", "take 2185297920 bytes and the workspace has 536870912"}},
		{"-new 512 -prefix 32768 -workspace 0", "absorb", []string{"the smallest chunk, 128 tokens"}},
		{"-new 8192", "expand", []string{"3024.0", "9621.9"}},
		{"-new 1 -prefix 8191", "absorb", []string{"275.5", "2.3"}},
		{"-new 64 -prefix 32768 -heads 16", "absorb", []string{"16 heads"}},
		{"-new 512 -prefix 32768 -heads 16", "expand", nil},
	} {
		args := append([]string{"plan"}, strings.Fields(c.args)...)
		code, table, stderr := mlagen(args...)
		if code != 0 || stderr != "" || !strings.Contains(table, "\nchoice: "+c.choice+", ") {
			t.Errorf("%s: exit %d, stderr %q, want %s\n%s", c.args, code, stderr, c.choice, table)
		}
		for _, s := range c.says {
			if !strings.Contains(table, s) {
				t.Errorf("%s: no %q in\n%s", c.args, s, table)
			}
		}
		code, text, stderr := mlagen(append(args, "-json")...)
		var report struct {
			Choice    string
			Workspace *int64
			Estimates []struct {
				Path                 string
				FLOP, Bytes, Seconds float64
			}
		}
		if err := json.Unmarshal([]byte(text), &report); err != nil || code != 0 || stderr != "" {
			t.Fatalf("%s -json: exit %d, stderr %q, %v", c.args, code, stderr, err)
		}
		if report.Choice != c.choice || len(report.Estimates) != 3 || (report.Workspace != nil) != strings.Contains(c.args, "-workspace") {
			t.Errorf("%s -json: %+v, want %s", c.args, report, c.choice)
		}
		for _, e := range report.Estimates {
			if e.FLOP <= 0 || e.Bytes <= 0 || e.Seconds <= 0 {
				t.Errorf("%s: %+v", c.args, e)
			}
		}
	}
	for args, want := range map[string]string{
		"":                     "say with -new how many new tokens there are",
		"-prefix 5":            "say with -new",
		"-new 0":               "new was 0 tokens, must be 1 to",
		"-new 5 -prefix -1":    "prefix was -1 tokens",
		"-new 5 -heads 0":      "heads was 0, must be 1",
		"-new 5 -workspace -1": "workspace was -1 bytes, must be at least 0",
		"-new 5 more":          "no arguments",
		"-new x":               "-new",
	} {
		code, stdout, stderr := mlagen(append([]string{"plan"}, strings.Fields(args)...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, want) || !strings.HasPrefix(stderr, "mlagen: ") {
			t.Errorf("plan %s: exit %d, stdout %q, stderr %q; want exit 2 and %q", args, code, stdout, stderr, want)
		}
	}
}

// TestPlanIsSteady: the same question has the same answer to the byte.
func TestPlanIsSteady(t *testing.T) {
	args := []string{"plan", "-new", "300", "-prefix", "5000", "-json"}
	_, first, _ := mlagen(args...)
	if _, second, _ := mlagen(args...); first != second || first == "" {
		t.Errorf("%s\n%s", first, second)
	}
}
