#include "follow.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>

#include "tools/files.hpp"

namespace pith_explain {

using pith::Error;
using pith::Expected;

Expected<ChoiceRecord> load_choices(const std::string& path) {
  const Expected<std::string> file = pith_tools::read_file(path);
  if (!file) return file.error();
  return read_choices(*file, path);
}

void print(const ChoiceRecord& record) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string shown =
      text(record, std::chrono::duration_cast<std::chrono::seconds>(now).count());
  constexpr std::string_view clear_screen = "\x1b[H\x1b[2J";
  fmt::print("{}{}", isatty(STDOUT_FILENO) != 0 ? clear_screen : "", shown);
  std::fflush(stdout);
}

Error follow_choices(const std::string& path) {
  constexpr std::chrono::milliseconds rest(200);
  const std::int64_t begun_unix_s = std::time(nullptr);
  std::string last;
  for (bool told = false;; std::this_thread::sleep_for(rest)) {
    const Expected<std::string> file = pith_tools::read_file(path);
    if (!file) {
      if (!std::exchange(told, true)) fmt::print(stderr, "pith-explain: waiting for {}\n", path);
      continue;
    }
    if (*file == last) continue;
    last = *file;
    const Expected<ChoiceRecord> record = read_choices(*file, path);
    if (!record) return record.error();
    if (record->ended && record->written_unix_s < begun_unix_s) {
      fmt::print(stderr, "pith-explain: {} is of a job that has ended; waiting for the next\n",
                 path);
      continue;
    }
    print(*record);
    if (record->ended) return {};
  }
}

}  // namespace pith_explain
