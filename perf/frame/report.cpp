#include "frame/report.hpp"

#include <ctime>

namespace pith_perf {

void Ways::add(const Ways& more) {
  calls += more.calls;
  bypassed += more.bypassed;
  compressed_by.insert(more.compressed_by.begin(), more.compressed_by.end());
  dense_by.insert(more.dense_by.begin(), more.dense_by.end());
}

std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm fields = {};
  localtime_r(&now, &fields);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &fields);
  return {text, length};
}

}  // namespace pith_perf
