package emu

import "testing"

type hazardTest struct {
	rule Rule
	body string
}

var hazardTests = []hazardTest{
	{RuleTrap, `	trap;`},
}

func TestHazards(t *testing.T) {
	for _, c := range hazardTests {
		t.Run(string(c.rule), func(t *testing.T) { newRig(t, c.body).hazard(c.rule) })
	}
}
