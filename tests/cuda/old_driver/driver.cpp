// The libcuda.so.1 of CUDA 11.4, as far as its version: the runtime must say that it is too old.
extern "C" int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
