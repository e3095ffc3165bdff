// What kernels have in common: numbers in bf16, several elements at once, sums over a block. The files in
// src/*/kernels are compiled by NVRTC when first needed (trainer/device/kernels.h), without any of CUDA's
// headers, and by the host's compiler for tests/support/emulated_gpu.h. What differs between the uses of a
// file is left open in it and defined from outside: Element, kWidth and so on.
#pragma once

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define DEVICE inline __device__
#endif

struct bf16 {
  unsigned short bits;
};

DEVICE float wide(float x) { return x; }
DEVICE float wide(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

// fp32 to T, to the nearest, ties to even.
template <class T>
DEVICE T narrow(float x) {
  return x;
}
template <>
DEVICE bf16 narrow<bf16>(float x) {
  if (x != x) return {0x7fc0};
  const unsigned bits = __float_as_uint(x);
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// x as it is after it was stored in a T.
template <class T>
DEVICE float rounded(float x) {
  return wide(narrow<T>(x));
}

// `width` elements that are moved as one; they begin at a multiple of their size.
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

// Of all threads in the grid along x.
DEVICE long long thread_index() { return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; }

struct Sum {
  static DEVICE float of(float a, float b) { return a + b; }
};
struct Most {
  static DEVICE float of(float a, float b) { return a > b ? a : b; }
};

// Over the block's threads, in one order: the same bits in every thread and every time. All of them call it;
// blocks have whole warps.
template <class Operation>
DEVICE float over_block(float x) {
  __shared__ float of_warp[32];
  for (int distance = 16; distance > 0; distance /= 2) {
    x = Operation::of(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warp[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; warp++) x = Operation::of(x, of_warp[warp]);
  __syncthreads();  // of_warp is free for the next call
  return x;
}
