typedef struct {
  long size;
  long step;
} Walk;
SHARED(Walk, 16);
