// A libnvrtc-builtins.so.0.0 for tests.
extern "C" const char nvrtc_builtins[] = "none";
