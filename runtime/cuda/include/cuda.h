/*
 * The cuda.h that gorgonia.org/cu is compiled against. It is the toolkit's own
 * header, after which the calls whose C signature CUDA 13 changed get their
 * CUDA 12 signature back. The driver exports the old entry points under these
 * names in every release, so the binary behaves the same with either header.
 *
 * Put this folder before the toolkit's on the include path:
 *   CGO_CFLAGS="-I…/runtime/cuda/include -I<toolkit>/include"
 */
#ifndef MLAGEN_CUDA_H
#define MLAGEN_CUDA_H

#include_next <cuda.h>

#if CUDA_VERSION < 12000
#error "mlagen needs the headers of CUDA 12.0 or later: tensor maps and cluster launches do not exist before"
#endif

#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev);

#undef cuMemAdvise
CUresult CUDAAPI cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device);

#undef cuMemPrefetchAsync
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream);

#undef cuGraphGetEdges
CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges);

#undef cuGraphAddDependencies
CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                        size_t numDependencies);

#undef cuGraphRemoveDependencies
CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                           size_t numDependencies);

#undef cuGraphAddNode
CUresult CUDAAPI cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                size_t numDependencies, CUgraphNodeParams *nodeParams);
#endif

#endif /* MLAGEN_CUDA_H */
