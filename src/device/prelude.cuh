// Functions that all kernels share: bf16 numbers, several elements at once, sums over a block. NVRTC compiles
// src/*/*.cu when first needed (device/kernels.h), without any of CUDA's headers; the host's compiler
// compiles them for tests/support/emulated_gpu.h. What differs between the uses of a file is left open in it
// and defined from outside ("Open: ..."): Element, kWidth and so on.
#pragma once

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define DEVICE inline __device__
#define UNROLL _Pragma("unroll")         // so that arrays in loops are kept in registers
#define UNROLL_TWO _Pragma("unroll 2")   // where more would take too many registers
#define GRID_CONSTANT __grid_constant__  // a struct whose arrays are read where the arguments lie
#else
#define UNROLL
#define UNROLL_TWO
#define GRID_CONSTANT
#endif

#ifdef __CUDACC__
// The shared memory that a launch asks for (KernelGrid::shared), as an S.
template <class S>
DEVICE S& dynamic_shared() {
  extern __shared__ __align__(16) unsigned char of_launch[];
  return *reinterpret_cast<S*>(of_launch);
}
#endif

struct bf16 {
  unsigned short bits;
};

DEVICE float wide(float x) { return x; }
DEVICE float wide(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

// Rounds fp32 to T, to the nearest, ties to even.
template <class T>
DEVICE T narrow(float x) {
  return x;
}
template <>
DEVICE bf16 narrow<bf16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned pair;  // 0 and x: converting two at once is faster than one
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
  return {static_cast<unsigned short>(pair)};
#else
  if (x != x) return {0x7fc0};
  const unsigned bits = __float_as_uint(x);
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

// Returns x as it is after being stored as a T.
template <class T>
DEVICE float rounded(float x) {
  return wide(narrow<T>(x));
}

DEVICE float infinity() { return __int_as_float(0x7f800000); }

// `width` elements that are moved together; they begin at a multiple of their size.
template <class T, int width>
struct alignas(sizeof(T) * width) Pack {
  T at[width];
};
template <int width, class T>
DEVICE Pack<T, width> load(const T* from) {
  return *reinterpret_cast<const Pack<T, width>*>(from);
}
template <int width, class T>
DEVICE void store(T* to, const Pack<T, width>& pack) {
  *reinterpret_cast<Pack<T, width>*>(to) = pack;
}

// The thread's index among all threads of the grid along x.
DEVICE long long thread_index() { return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; }

struct Sum {
  static DEVICE float of(float a, float b) { return a + b; }
};
struct Most {
  static DEVICE float of(float a, float b) { return a > b ? a : b; }
};

// The sum (or the like) over the threads of a warp, in each of them. All of them must call it.
template <class Operation>
DEVICE float over_warp(float x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x = Operation::of(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

// Sums over the block's threads in a fixed order: the same bits in every thread and every time. All threads
// must call it; blocks consist of whole warps.
template <class Operation>
DEVICE float over_block(float x) {
  __shared__ float of_warp[32];
  x = over_warp<Operation>(x);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warp[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; warp++) x = Operation::of(x, of_warp[warp]);
  __syncthreads();  // of_warp is free for the next call
  return x;
}
