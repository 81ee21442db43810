// Package vectors holds the truth that hardware told: small kernels, what an
// H200 made of them, and the comparison with ptx/hopper and the units of
// ptx/emu, which generator and emulator share and could share an error in.
//
// An experiment is a kernel with fixed inputs. RecordApart runs all of them, in
// processes of their own since a fault ends a process's use of a GPU; TestRecord
// with the build tag cuda writes the results to testdata with -update, and says
// first what failed:
//
//	go test -tags cuda -c -o vectors.test ./golden/vectors
//	MLAGEN_VECTORS_OUT=testdata ./vectors.test -test.run Record -update
//
// The files are NumPy archives, one array per experiment. Without the tag the
// tests compare every unit with them.
package vectors
