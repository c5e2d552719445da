#define CATCH_CONFIG_RUNNER
#include "catch.hpp"

#if defined(__SANITIZE_THREAD__)
// The thread of a bootstrap root has a table of descriptors of its own: a number is another
// connection there than elsewhere in the process.
extern "C" [[gnu::visibility("default")]] const char*
__tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:RootThread::run\n";
}
#endif

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
