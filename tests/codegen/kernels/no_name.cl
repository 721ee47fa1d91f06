__kernel void clear(__global uchar *out, ulong out_offset, long) {}
