package manifest

// Launch says how a host launches the kernel: what the caller gives, and how
// grid, buffers and parameters follow from it. Numbers are expressions (see
// Expr) over named quantities, 64-bit integers, which become known in this
// order:
//
//  1. constants, and sms: the device's multiprocessors;
//  2. integer arguments, each between its min and max, and of each table
//     argument T, T.rows, how many rows it has;
//  3. quantities, and with them the buffers' sizes, which a caller may ask for
//     before there is a tensor;
//  4. of each tensor argument T, in each dimension D, T.size.D in elements and
//     T.stride.D in bytes (a stride means nothing where the size is 1 and may
//     be 0 there), and of one that may be left out T.given, 1 or 0: then its
//     address, sizes and strides are 0.
//
// An expression uses only what is known before it. All kernels of an operation
// call the same thing by the same name and say the same of it, so that their
// arguments are given once.
type Launch struct {
	Operation string `json:"operation"`
	// Steps are the operation's launches in their order. All but the first may be
	// launched programmatically (see Programmatic).
	Steps []Step `json:"steps"`

	Constants  []Constant `json:"constants,omitempty"`
	Arguments  []Argument `json:"arguments"`
	Quantities []Quantity `json:"quantities,omitempty"`

	// When is 0 where nothing is to be launched; absent means always.
	When string `json:"when,omitempty"`
	// Grid is the number of CTAs in x, y and z.
	Grid [3]string `json:"grid"`
	// Programmatic allows the launch with the attribute "programmatic stream
	// serialization": the kernel waits itself for the one before it, where it must.
	// Without the attribute the results are the same.
	Programmatic bool `json:"programmatic"`
}

// Step is one launch of an operation.
type Step struct {
	Kernel string `json:"kernel"`
	// Once says how often: "step" is once for all layers of a model, as long as
	// the quantities and what its tensors hold stay the same; "layer" is once for
	// every layer; steps of "chunk" take turns, in every layer as often as there are
	// chunks.
	Once string `json:"once"`
}

// What a step may be launched once per.
const (
	OncePerStep  = "step"
	OncePerLayer = "layer"
	OncePerChunk = "chunk"
)

// Constant is a number that the kernel was generated for.
type Constant struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}

// Quantity is a number that follows from those before it.
type Quantity struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ArgumentKind is what an argument is.
type ArgumentKind string

// Argument kinds.
const (
	TensorArgument  ArgumentKind = "tensor"  // a strided view of device memory
	BufferArgument  ArgumentKind = "buffer"  // device memory without a structure for the caller
	IntegerArgument ArgumentKind = "integer" // a 64-bit integer
	RealArgument    ArgumentKind = "real"    // a floating-point number
	TableArgument   ArgumentKind = "table"   // rows of 64-bit fields, addresses and strides among them
)

// Argument is something that the caller gives.
type Argument struct {
	Name string       `json:"name"`
	Kind ArgumentKind `json:"kind"`
	Doc  string       `json:"doc"` // what it means, for the caller

	// Of a tensor. The innermost stride is 1 element. Align is what the address
	// and the other strides must be a multiple of, in bytes; Dense means that the
	// elements lie one after the other.
	DType  string      `json:"dtype,omitempty"` // bf16, fp16, f32, s32 or s64
	Shape  []Dimension `json:"shape,omitempty"` // outermost first
	Align  int         `json:"align,omitempty"` // of a buffer: of its address
	Dense  bool        `json:"dense,omitempty"`
	Output bool        `json:"output,omitempty"` // written

	Optional bool `json:"optional,omitempty"` // may be left out

	// Bytes is the least size of a buffer. What it holds before the operation's
	// first launch means nothing; until its last nobody else may write it.
	Bytes string `json:"bytes,omitempty"`

	// Fields are those of a table's row, in their order; Rows is the most it takes.
	Fields []string `json:"fields,omitempty"`
	Rows   int      `json:"rows,omitempty"`

	// Min and Max bound an integer. They use constants and the integers before it.
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
}

// Dimension is one dimension of a tensor argument.
type Dimension struct {
	Name string `json:"name"`
	Size string `json:"size,omitempty"` // empty = any
}

// Fill says what a parameter holds: one of Address, Value, Real and Table.
type Fill struct {
	Address string `json:"address,omitempty"` // a pointer: the address of this tensor or buffer
	Offset  string `json:"offset,omitempty"`  // bytes added to the address
	Value   string `json:"value,omitempty"`   // an integer
	// Real is the name of a real argument. It is multiplied by Factor, where there
	// is one, in double precision and then rounded once, to the parameter's type.
	Real   string  `json:"real,omitempty"`
	Factor float64 `json:"factor,omitempty"`
	Table  string  `json:"table,omitempty"` // a table: the rows of this argument, and after them anything
}

// Source says what a tensor map describes: the address of an argument, and an
// expression for each dimension, innermost first.
type Source struct {
	Address string   `json:"address"`
	Offset  string   `json:"offset,omitempty"` // bytes added to the address
	Sizes   []string `json:"sizes"`            // elements
	// Strides are in bytes, of every dimension but the innermost. One that comes out
	// as 0, since its dimension has one element, is made up: the size times the
	// stride of the dimension inside it.
	Strides []string `json:"strides"`
}
