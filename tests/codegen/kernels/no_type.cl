__kernel void flip(__global uchar *out, ulong out_offset, bool is_last) {}
