__kernel ATTRIBUTES;
void later(int count) {}
