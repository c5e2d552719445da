// The target's inputs come from libFuzzer. Without a corpus it is given the seeds:
// `fuzz_NAME --seeds FOLDER` writes them and ends.
#include <cstring>
#include <fstream>

#include "fuzz_target.hpp"

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  if (*count != 3 || std::strcmp((*arguments)[1], "--seeds") != 0) return 0;
  int number = 0;
  for (const std::string& seed : pith::fuzz::seeds()) {
    std::ofstream(std::string((*arguments)[2]) + "/seed" + std::to_string(number++)) << seed;
  }
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  pith::fuzz::run({data, size});
  return 0;
}
