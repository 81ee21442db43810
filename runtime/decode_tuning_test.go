package runtime

import (
	"errors"
	"testing"
)

// Requests of at most two forced pieces leave nothing to decode_combine.
func TestDecodeMergesOnlyWhatNeedsIt(t *testing.T) {
	for splits, want := range map[int]int{0: 2, 1: 1, 2: 1, 3: 2, 40: 2} {
		r := newRig(t, 16, 1, 16)
		r.args.Splits = splits
		r.args.Schedule = r.buffer("schedule", r.decode.ScheduleBytes(3, splits))
		r.args.Workspace = r.buffer("workspace", r.decode.WorkspaceBytes(3, splits))
		if err := r.decode.Run(r.stream, r.args); err != nil {
			t.Fatal(err)
		}
		if got := len(r.stream.launches); got != want {
			t.Errorf("%d pieces: %d launches, want %d", splits, got, want)
		}
	}
}

func TestDecodeTuning(t *testing.T) {
	r := newRig(t, 16, 1, 16)
	run := func(tuning DecodeTuning) Launch {
		t.Helper()
		r.args.Tuning = tuning
		if err := r.decode.Run(r.stream, r.args); err != nil {
			t.Fatal(err)
		}
		return r.stream.launches[len(r.stream.launches)-1]
	}
	for _, c := range []struct {
		tuning          DecodeTuning
		grid, promotion int
		encoded         int // so far: a map is encoded anew only where its promotion changes
	}{
		{DecodeTuning{}, 132, 128, 1}, {DecodeTuning{MergeBlocks: 66}, 66, 128, 1}, {DecodeTuning{Promotion: 64}, 132, 64, 2},
		{DecodeTuning{MergeBlocks: 1, Promotion: 64}, 1, 64, 2}, {DecodeTuning{Promotion: 256}, 132, 256, 3}, {DecodeTuning{}, 132, 128, 4},
	} {
		l := run(c.tuning)
		maps := r.driver.encoded
		if l.Grid.X != c.grid || len(maps) != c.encoded || maps[len(maps)-1].Promotion != c.promotion {
			t.Errorf("%+v: grid %d, %d maps, the last with promotion %d; want %+v", c.tuning, l.Grid.X, len(maps), maps[len(maps)-1].Promotion, c)
		}
	}
	for _, bad := range []DecodeTuning{{MergeBlocks: -1}, {MergeBlocks: 1 << 31}, {Promotion: 100}, {Promotion: -64}} {
		r.args.Tuning = bad
		var argument *ArgumentError
		if err := r.decode.Run(r.stream, r.args); !errors.As(err, &argument) {
			t.Errorf("%+v: got %v", bad, err)
		}
	}
}
