// Annotations with which one function serves GPUs and CPUs.
//
// CUVMM_HOST_DEVICE: compiled by nvcc, the function exists on both sides; by any other compiler, it is a plain
// function. CUVMM_DEVICE: compiled by nvcc, the function is the GPU's; by any other compiler, the CPU's. For what calls
// through a memory policy (memory_policy.cuh), whose functions exist on one side only.
#pragma once

#ifndef CUVMM_HOST_DEVICE
#ifdef __CUDACC__
#define CUVMM_HOST_DEVICE __host__ __device__
#else
#define CUVMM_HOST_DEVICE
#endif
#endif

#ifdef __CUDACC__
#define CUVMM_DEVICE __device__
#else
#define CUVMM_DEVICE
#endif

// Before a loop of a known number of rounds that nvcc is to write out, so that arrays stay in registers.
#ifdef __CUDACC__
#define CUVMM_UNROLL _Pragma("unroll")
#else
#define CUVMM_UNROLL
#endif
