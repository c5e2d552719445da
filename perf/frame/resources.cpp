#include "frame/resources.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include "frame/allocations.hpp"
#include "frame/system_calls.hpp"

namespace pith_perf {

std::int64_t resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::int64_t kib = 0;
  int found = 0;
  for (std::string line; std::getline(rollup, line);) {
    if (!line.starts_with("Pss_Anon:") && !line.starts_with("Pss_Shmem:")) continue;
    std::int64_t value = 0;
    std::istringstream(line.substr(line.find(':') + 1)) >> value;
    kib += value;
    ++found;
  }
  return found == 2 ? kib * 1024 : -1;
}

Usage usage_of(int times, const std::function<void()>& one) {
  const auto repeat = [&] {
    for (int i = 0; i < times; ++i) one();
  };
  Usage usage;
  const auto before = allocations();
  repeat();
  const auto after = allocations();
  if (before && after) {
    usage.allocations = static_cast<double>(*after - *before) / times;
  }
  if (const auto calls = count_system_calls(repeat)) {
    usage.system_calls = static_cast<double>(calls->other) / times;
    usage.waiting_calls = static_cast<double>(calls->waiting) / times;
  }
  return usage;
}

}  // namespace pith_perf
