__kernel void scan(__global uchar *out, ulong out_offset, long length, long rows) {}
