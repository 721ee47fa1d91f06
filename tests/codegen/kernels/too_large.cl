typedef struct {
  long sizes[130];
} Sizes;
SHARED(Sizes, 1040);

__kernel void resize(__global uchar *out, ulong out_offset, Sizes sizes) {}
