// Package differential runs the same PTX with the same inputs and launches on
// two devices, a GPU and the emulator, and compares everything that the
// kernels leave behind.
//
// # What is compared
//
//   - decode_schedule: the schedule to the bit, words that no kernel writes
//     included, for the memory is filled before. So both devices attend by the
//     same plan; for that they plan for the same number of multiprocessors.
//   - absorb_decode: the output and LSE of requests that one CTA covers
//     (whole) and of those whose two pieces the later one merges (pair), the
//     arrival counts, and the partial results that decode_combine reads
//     (partial). Of a pair only the piece that finishes first leaves a partial
//     result; which one it is is a matter of time, so these are not compared.
//   - decode_combine: the output and LSE of requests in three or more pieces,
//     after absorb_decode and, by itself, from partial results that are given.
//   - stream: the word that each CTA makes of the pages it has read.
//   - expand_schedule: the list of blocks to the bit, words that no kernel writes
//     included.
//   - expand_prefill: the output, the LSE, and the items that are left dealt.
//   - extend_schedule: every chunk's tokens and list of blocks to the bit, words
//     that no kernel writes included.
//   - extend_attend: the output, the LSE, and the items that are left dealt, after
//     all chunks. What is carried from one to the next is relative to the score
//     that happened to be the reference, and is not compared by itself.
//   - merge_states: the merged output and LSE.
//   - append_kv: the cache to the bit, slots that nobody named included.
//   - up_project: expanded keys and values, and the rope keys to the bit.
//   - absorb_q and absorb_o: the absorbed queries with their rope parts, and the
//     outputs.
//
// # How differences are measured
//
// Outputs are 16-bit numbers, and a difference is stated in units in the last
// place (ulp) of the output's type T. An output element is a weighted sum of
// the column's values, whose rounding errors are as large as its terms, not as
// the sum: where terms cancel, an error that is small beside the row is many
// ulp of the element. So the measure is
//
//	|a − b| / ulp_T(max(|a|, |b|, ‖row‖/√width))
//
// with ulp_T(x) the distance between T's neighbours at x and ‖row‖ the larger
// of the two rows' norms: elements smaller than the row's root mean square are
// measured at the root mean square. The table also shows the largest distance
// in ulp of the element itself (own), which has no bound, and how many
// elements differ at all. Partial results are compared by their worth, element
// × unit, each at its row and latent column, and are measured in ulp_T as well,
// for they are made of weights that were rounded to T. Where they are f16, they
// may be one ulp of f16 at the row's largest element further apart: they are
// rounded to it, and units differ where the last bit of that element makes it
// another power of two. That a row has the same LSE in all its states, and as many
// units as it should, is looked at on either side. NaN and infinity on either side are infinitely far.
//
// Devices may differ where PTX leaves results open: the order and precision
// in which wgmma adds, the last bits of ex2, lg2 and rcp. An exponential that
// differs in its last bit may round to the neighbouring 16-bit weight, which
// moves the output by up to half an ulp_T; its own rounding makes that one ulp,
// and two where both fall together. Hence the limit of 2. The LSE adds weights
// before they are rounded; it inherits the error of its largest logit, and may
// differ by 2e-5·max(1, |LSE|). The table shows its largest absolute difference.
package differential
