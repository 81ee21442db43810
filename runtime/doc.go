// Package runtime loads generated kernels and launches them, on a GPU or on the
// CPU emulator, through one small Driver interface. This page is for whoever
// builds an inference engine on it; examples/decode is the shortest program that
// does, examples/decode-server one with continuous batching.
//
// # Load
//
// A Driver is a device: cuda.Open of package runtime/cuda (build tag cuda), or
// emu.Open of runtime/emu. A Variant is a kernel's PTX with its manifest. Variants
// come from generated Go code that embeds them (mlagen bind), from files
// (ParseVariant), or from whatever implements Source; variants.Source of
// templates/variants generates them on the spot. Then
//
//	decode, err := runtime.LoadDecode(drv, variants)
//
// compiles them for the device, some tenths of a second each on first use, and
// refuses what does not fit: another text than the manifest's, kernels that were
// made for different shapes, a device that cannot run them. Kernels are made for a
// number of heads, of query tokens, and an element type, and serve any batch and
// any lengths. How many query rows share a block is a matter of speed: Chooser says
// what suits a load.
//
//	LoadDecode        absorbed attention of 1, 2, … query tokens per request to the paged cache
//	LoadPrefill       attention to expanded keys and values, sequences of any lengths
//	LoadExtend        new tokens on a long cached prefix, expanded in chunks
//	LoadAbsorbQuery   queries into the latent space; LoadAbsorbOutput back out of it
//	LoadUpProject     latents to the keys and values of all heads
//	LoadAppendKV      new latents and rope keys into the cache, by slot
//	LoadMergeStates   partial results over disjoint keys, by their LSE
//	LoadLayer         all of these behind one call, for a batch that mixes them
//
// # Memory
//
// The caller owns all memory and says where it lies: a Tensor is an address, an
// element type, a shape and strides in elements, as in DLPack; a Buffer is bytes
// whose contents are none of the caller's business. A call allocates nothing on the
// device and waits for nothing. ScheduleBytes and WorkspaceBytes tell the sizes of
// buffers; they depend on capacity, never on lengths, so an engine allocates once,
// for the largest batch that it admits. Addresses are aligned to 16 bytes, and
// strides other than the innermost are multiples of 16 bytes. One workspace may
// serve all calls that run one after the other. One schedule buffer is needed for
// every step in flight.
//
// The cache is [pages, 64, latent+rope]. Entries of a block table past a request's
// last page, slots of a page past its last token, and pages of others may hold
// anything, NaN included: nothing of it is dereferenced or reaches a result. A
// request of length 0 gets zeros and an LSE of −∞.
//
// # A step
//
// Lengths lie in device memory and include the new tokens, whose rows must be in
// the cache.
//
//	err := decode.Schedule(stream, runtime.ScheduleArgs{…}) // once: deals the work to the device
//	for each layer of the model {
//		err = appendKV.Run(stream, runtime.AppendArgs{…})
//		err = decode.Run(stream, runtime.DecodeArgs{NewTokens: 1, …})
//	}
//
// Each call queues its kernels and returns; none waits for the device. A
// kernel may start while the one before it ends (programmatic dependent launch);
// what one of them needs of another it waits for. A kernel of the caller's own that
// lets its dependents start early, and writes lengths, tables or the schedule, must
// have another between it and Run.
//
// NewTokens is a promise: that since Schedule was launched at most so many of each
// request's newest tokens were written to the cache. Decode may then read the first
// of the pages without them while the kernel ahead still runs, which makes a step of
// few tokens up to a fifth shorter. What is older must have been there before
// Schedule, in every page of the request, whoever wrote it. So it does not hold, and
// NewTokens must be larger or 0, where after Schedule
//   - a prompt is written of which only the last token is a query,
//   - a request reads a prefix that another one fills in the same step,
//   - pages are copied, moved or brought in from elsewhere,
//   - more than one step is taken, as by a schedule that was made ahead.
//
// The numbers would be wrong, and a GPU would not say so. The emulator does
// (missing-grid-dependency).
//
// # Graphs
//
// A step may be captured: BeginCapture, the same calls, EndCapture, then Replay as
// often as wanted. A graph keeps the addresses, the batch, the splits and NewTokens of
// the capture, not what lies in memory: between replays lengths, tables, slots, queries
// and cache may change. So an engine captures one graph for each of some capacities,
// as 1, 2, 4, …, and fills places without a request with length 0 and slot −1.
//
// # Results that do not depend on the batch
//
// With Splits 0 the schedule balances a batch over the device, and where a request
// is cut depends on its batch mates; the order of a sum, and the last bits, follow.
// The same call with the same inputs gives the same bits always. With Splits n each
// request is cut by its own length alone, and its bits depend on nothing else:
// whoever shares its batch, at which place, in a batch or graph of any capacity. The
// row block and n must then be those of the whole deployment: ask Chooser.BlockH and
// Chooser.Splits once, with the largest batch and length.
//
// # Errors
//
// A mistake in arguments (shape, type, stride, alignment, size, memory of another
// device) is an *ArgumentError that names the argument, what it was and what it must
// be; nothing was launched then. Lengths, tables and slots lie on the device, where
// the host does not look. Those that would write outside the cache (a slot or a
// position past its end) stop the kernel. Whatever goes wrong on the device shows as
// an error of Stream.Synchronize, or of a later call, and a GPU's context is lost
// with it. The emulator says more: races, reads of memory that nobody has written, the
// kernel's line.
//
// # Threads
//
// A Driver's methods may be called from any goroutine, one at a time; the same holds
// for those of its streams, events and graphs, and of whatever was loaded. What was
// loaded may serve several streams, as long as runs that may overlap have schedules,
// workspaces and outputs of their own. Close, Unload and Destroy are for when nothing
// uses the thing any more.
package runtime
