typedef struct {
  int count;
} Walk;
SHARED(Walk, 4);  // bytes
