typedef struct {
  int count;
  long step;
} Walk;
SHARED(Walk, 16);
