__kernel void walk(__global uchar *out, ulong out_offset, Walk walk) {}
