package runtime

// Locator is implemented by drivers that can say where an address lies. The
// validation of arguments uses it, where it is there, to tell a host address,
// another device's memory and a tensor that runs past its allocation from
// arguments that a kernel can take.
type Locator interface {
	// Locate says where p lies. It does not fail for an address that nobody
	// allocated; it reports Local false.
	Locate(p Ptr) (Location, error)
}

// Location is where an address lies.
type Location struct {
	Local bool   // in memory of the driver's device
	Where string // for people, when not Local: "memory of GPU 1", "not device memory"
	Base  Ptr    // start of the allocation
	Size  int64  // of the allocation in bytes
	Open  bool   // usable memory may follow: the allocation is mapped piece by piece
}

// Copier is implemented by streams that can copy within the device in stream
// order.
type Copier interface {
	// CopyAsync copies size bytes; the ranges must not overlap.
	CopyAsync(dst, src Ptr, size int64) error
}

// ParamLocator is implemented by functions whose compiled parameters can be
// asked for.
type ParamLocator interface {
	// Param returns the offset and size in bytes of the index-th parameter as
	// compiled. The offset is in the device's parameter memory, which need not
	// begin with the first parameter. exists is false where the kernel has no
	// such parameter, which a careful caller does not ask for: a GPU driver
	// reports it to debugging tools as an error. known is false when the driver
	// cannot say.
	Param(index int) (offset, size int, exists, known bool)
}
