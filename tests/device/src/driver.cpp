// libcuda.so.1: the few functions of the driver that torch calls without compiling anything at run time.
#include "cuda.h"

namespace {
int context;
}

API int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return kSuccess;
}
API int cuCtxGetCurrent(void** current) {
  *current = &context;
  return kSuccess;
}
API int cuCtxSetCurrent(void*) { return kSuccess; }
API int cuDevicePrimaryCtxRetain(void** found, int) {
  *found = &context;
  return kSuccess;
}
API int cuDeviceGet(int* device, int number) {
  *device = number;
  return kSuccess;
}
