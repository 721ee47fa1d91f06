typedef struct {
  int width, height;
} Plane;
SHARED(Plane, 8);
