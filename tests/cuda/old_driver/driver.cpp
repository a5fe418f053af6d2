// What libcuda.so.1 of CUDA 11.4 tells of itself, and no more: the runtime must say that it is too old.
extern "C" int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
