// Which lines NCCL's variables let through, and what stands before them.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "catch.hpp"
#include "nccl/log_lines.hpp"

using namespace pith;
using nccl::LogLines;

namespace {

// 2026-11-23 04:05:06.123456789 in UTC.
constexpr timespec time_of_day{1795406706, 123456789};

class InUtc {
 public:
  InUtc() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
  ~InUtc() {
    unsetenv("TZ");
    tzset();
  }
};

LogLines lines_of(const char* name, const std::string& value) {
  const Variables variables{{name, value}};
  return LogLines(variables);
}

std::string stamp(const std::string& format, LogLevel level = LogLevel::warn) {
  return lines_of("NCCL_DEBUG_TIMESTAMP_FORMAT", format).stamp(level, time_of_day);
}

}  // namespace

TEST_CASE("NCCL_DEBUG_SUBSYS", "[nccl]") {
  const auto shows = [](const char* list, LogTopic topic) {
    return lines_of("NCCL_DEBUG_SUBSYS", list).shows(LogLevel::info, topic);
  };
  for (const LogTopic topic : {LogTopic::init, LogTopic::env, LogTopic::bootstrap}) {
    CHECK(LogLines(Variables()).shows(LogLevel::info, topic));
    CHECK(shows("ALL", topic));
    CHECK_FALSE(shows("COLL,GRAPH", topic));
    CHECK(shows("^COLL,GRAPH", topic));
    CHECK_FALSE(shows("nonsense", topic));
  }
  CHECK_FALSE(LogLines(Variables()).shows(LogLevel::info, LogTopic::p2p));
  CHECK(shows("init,p2p", LogTopic::p2p));
  CHECK(shows("P2P,INIT", LogTopic::init));
  CHECK_FALSE(shows("P2P,INIT", LogTopic::env));
  CHECK_FALSE(shows("^INIT", LogTopic::init));
  CHECK(shows("^INIT", LogTopic::alloc));
  CHECK_FALSE(shows("^ALL", LogTopic::init));
}

TEST_CASE("NCCL_DEBUG_FILE", "[nccl]") {
  char name[256] = "";
  REQUIRE(gethostname(name, sizeof name - 1) == 0);
  const std::string host(name, std::find(name, name + std::strlen(name), '.'));
  const std::string process = std::to_string(getpid());
  CHECK(nccl::expand("/tmp/%h.%p.log") == "/tmp/" + host + "." + process + ".log");
  CHECK(nccl::expand("%%h%%%p") == "%h%" + process);
  CHECK(nccl::expand("%x%") == "%x%");
  CHECK(nccl::expand("").empty());
}

TEST_CASE("NCCL_DEBUG_TIMESTAMP_FORMAT", "[nccl]") {
  const InUtc utc;
  CHECK(LogLines(Variables()).stamp(LogLevel::warn, time_of_day) == "[2026-11-23 04:05:06] ");
  CHECK(stamp("%H:%M:%S_") == "04:05:06 ");
  CHECK(stamp("%S.%3f|%2f") == "06.123|%2f");
  CHECK(stamp("%9f ") == "123456789 ");
  CHECK(stamp("%%3f") == "%3f");
  CHECK(stamp(std::string(300, 'x')) == "[2026-11-23 04:05:06] ");
}
