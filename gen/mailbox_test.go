package gen_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mlagen/mlagen/gen"
	"github.com/mlagen/mlagen/ptx/isa"
)

// TestMailbox: every reading warp, in all of its lanes, gets every message once
// and in order, whoever is late, for several rounds of the slots; the last one
// counts the messages itself.
func TestMailbox(t *testing.T) {
	const messages, readers = 7, 3
	word := func(message, i int) uint32 { return uint32(1000*message + 10*i + 5) }
	for _, size := range []int{1, 4, 6} {
		for _, slots := range []int{1, 2, 3} {
			for seed := range uint64(4) {
				t.Run(fmt.Sprintf("%d words, %d slots, seed %d", size, slots, seed), func(t *testing.T) {
					r := newRig(t, 0)
					r.machine.SetSeed(seed)
					k := r.k
					box := k.Mailbox("box", slots, size, readers)
					k.InitBarriers()
					k.Roles(
						gen.Role{Name: "read", Warps: readers, Body: func() {
							each := func(receive func(m gen.Value) []gen.Value) {
								k.For("message", 0, messages, 1, func(m gen.Value) {
									for i, w := range receive(m) {
										at := k.Thread().Mul(messages).Add(m).Mul(size).Add(i)
										r.out.At(at).Store(0, w.As(isa.U32))
									}
								})
							}
							k.IfElse(k.Warp().Lt(readers-1), func() {
								mail := box.Receiver()
								each(func(gen.Value) []gen.Value { return mail.Receive() })
							}, func() { each(box.Receive) })
						}},
						gen.Role{Name: "send", Warps: 1, Body: func() {
							k.OneLane(func() {
								mail := box.Sender()
								k.For("message", 0, messages, 1, func(m gen.Value) {
									var words []gen.Value
									for i := range size {
										words = append(words, m.Mul(1000).Add(10*i+5))
									}
									mail.Send(words...)
								})
							})
						}},
					)
					want := each(readers*32*messages*size, func(i int) uint32 { return word(i/size%messages, i%size) })
					if diff := cmp.Diff(want, r.run(len(want))); diff != "" {
						t.Errorf("(-want +got):\n%.2000s", diff)
					}
				})
			}
		}
	}
}
