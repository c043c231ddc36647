// libcublas and libcublasLt: all succeeds and nothing is computed. By hand: what has to hand something back.
#include "cuda.h"

API int cublasCreate_v2(void** handle) {
  static int one;
  *handle = &one;
  return 0;
}
API int cublasGetMathMode(void*, int* mode) {
  *mode = 0;
  return 0;
}
API int cublasGetPointerMode_v2(void*, int* mode) {
  *mode = 0;
  return 0;
}
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*, int* found) {
  *found = 1;  // the result that the caller has zeroed: status "success", no workspace
  return 0;
}
