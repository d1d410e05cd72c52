package main

import (
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	results := tally{}
	for line := range strings.Lines(`{"Action":"start","Package":"weir/e2e/live"}
{"Action":"run","Package":"weir/e2e/live","Test":"TestA"}
{"Action":"output","Package":"weir/e2e/live","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"weir/e2e/live","Test":"TestA","Output":"    a_test.go:12: waiting for a segment: 404\n"}
{"Action":"output","Package":"weir/e2e/live","Test":"TestA","Output":"--- FAIL: TestA (0.00s)\n"}
{"Action":"fail","Package":"weir/e2e/live","Test":"TestA"}
{"Action":"pass","Package":"weir/e2e/live","Test":"TestB"}
{"Action":"skip","Package":"weir/e2e/live","Test":"TestC"}
{"Action":"pass","Package":"weir/e2e/live","Test":"TestA"}
not JSON
`) {
		results.note([]byte(line))
	}
	want := strings.Join([]string{
		"test                                                                    runs failures  reason",
		"e2e/live TestA                                                             2        1  a_test.go:12: waiting for a segment: 404",
		"e2e/live TestB                                                             1        0  ",
		"",
	}, "\n")
	if got := results.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if n := results.failures(); n != 1 {
		t.Errorf("%d failures, want 1", n)
	}
}

func TestReason(t *testing.T) {
	for _, tt := range []struct {
		output []string
		want   string
	}{
		{nil, "its subtests, or no reason was printed"},
		{[]string{"    a_test.go:1: a figure\n", "    a_test.go:9: wrong\n", "--- FAIL: TestA\n"}, "a_test.go:9: wrong"},
		{[]string{"    a_test.go:9: wrong\n", "    browser.go:80: what hls.js said last\n", "--- FAIL: TestA\n"}, "a_test.go:9: wrong"},
		{[]string{"panic: index out of range\n", "goroutine 1 [running]:\n"}, "panic: index out of range"},
		{[]string{"FAIL\tweir/e2e/live [build failed]\n"}, "FAIL\tweir/e2e/live [build failed]"},
		{[]string{"    a_test.go:1: " + strings.Repeat("x", 200)}, "a_test.go:1: " + strings.Repeat("x", 127) + "…"},
	} {
		if got := reason(tt.output); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.output, got, tt.want)
		}
	}
}
