// Package nvml reads a GPU's power, clock and energy counter through NVIDIA's
// management library, libnvidia-ml.so.1, which comes with the GPU driver. The
// library is looked for when a meter is opened, so that a program which links
// this package starts without it. Nothing here changes a setting. Like package
// cuda it is empty without the build tag `cuda`.
package nvml
