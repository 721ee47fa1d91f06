#define DIMS 2

typedef struct {
  int sizes[DIMS];
  long strides[DIMS];
} Axis;
SHARED(Axis, 20);
