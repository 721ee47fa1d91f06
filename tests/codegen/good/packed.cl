// One parameter of each kind; `in` the comment (is not a parameter.
#if !defined(ONE_KERNEL) || defined(KERNEL_fill)
typedef struct { ulong out_offset; ulong value[2]; long first; long last; int out_dtype; int mode; } fill_packed; __kernel GROUPS_OF(LSIZE) void fill(__global uchar *out, const Layout layout, __local T *line, __global const uchar *table, Unshared rest, const fill_packed packed TEXT_PARAMETERS) { const ulong out_offset = packed.out_offset; const T value = UNPACK_T(packed.value); const long first = packed.first; const long last = packed.last; const int out_dtype = packed.out_dtype; const int mode = packed.mode;
  store(out + out_offset, first, out_dtype, value);
}
#endif

#if !defined(ONE_KERNEL) || defined(KERNEL_swap)
__kernel void swap(__global uchar *a, __global uchar *b) {}
#endif

// Has the same parameters as another kernel.
#if !defined(ONE_KERNEL) || defined(KERNEL_swap_back)
__kernel void swap_back(__global uchar *a, __global uchar *b) {}
#endif

// A macro determines the number of its buffers.
#define OPERANDS __global uchar *out INPUTS(DECLARED)
#if !defined(ONE_KERNEL) || defined(KERNEL_listed)
__kernel void listed(long count, OPERANDS) {}
#endif
