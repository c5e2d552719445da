#include "nccl/log_lines.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstring>
#include <mutex>
#include <span>
#include <string_view>

#include "nccl/abi.h"
#include "nccl/device_context.hpp"

namespace pith::nccl {

namespace {

constexpr unsigned bit(LogTopic topic) { return 1u << static_cast<unsigned>(topic); }

struct Word {
  std::string_view name;
  unsigned bits;
};

// NCCL has more topics; we log nothing about those.
constexpr std::array topic_words = {Word{"INIT", bit(LogTopic::init)},
                                    Word{"ENV", bit(LogTopic::env)},
                                    Word{"BOOTSTRAP", bit(LogTopic::bootstrap)},
                                    Word{"P2P", bit(LogTopic::p2p)},
                                    Word{"ALLOC", bit(LogTopic::alloc)},
                                    Word{"GRAPH", bit(LogTopic::graph)},
                                    Word{"ALL", ~0u}};
constexpr unsigned usual_topics =
    bit(LogTopic::init) | bit(LogTopic::env) | bit(LogTopic::bootstrap);

enum Level : unsigned { version = 1, warn = 2, info = 4, trace = 8 };
constexpr std::array level_words = {Word{"VERSION", version}, Word{"WARN", warn},
                                    Word{"INFO", info}, Word{"TRACE", trace}, Word{"ALL", ~0u}};
constexpr std::string_view usual_format = "[%F %T] ";

unsigned bit_of(LogLevel level) {
  constexpr unsigned bits[] = {warn, warn, info, trace};
  return bits[static_cast<int>(level)];
}

bool is_same_word(std::string_view one, std::string_view other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) ==
           std::toupper(static_cast<unsigned char>(b));
  });
}

// "A,B", or "^A,B" for all but these.
unsigned read_list(std::string_view list, std::span<const Word> words, unsigned usual) {
  if (list.empty()) return usual;
  const bool excludes = list.starts_with('^');
  if (excludes) list.remove_prefix(1);
  unsigned bits = 0;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    for (const Word& word : words) bits |= is_same_word(word.name, name) ? word.bits : 0;
    list.remove_prefix(std::min(name.size() + 1, list.size()));
  }
  return excludes ? ~bits : bits;
}

std::string value_of(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found == variables.end() ? std::string() : found->second;
}

// %3f and the like, which strftime does not know: digits of the second's fraction. Only the first
// one is replaced, as in NCCL.
std::string with_fraction(std::string format, long nanoseconds) {
  for (std::size_t i = 0; i + 2 < format.size(); ++i) {
    if (format[i] != '%') continue;
    const char digits = format[i + 1];
    if (digits >= '1' && digits <= '9' && format[i + 2] == 'f') {
      const std::string all = fmt::format("{:09}", nanoseconds);
      return format.replace(i, 3, all, 0, static_cast<std::size_t>(digits - '0'));
    }
    ++i;  // skips "%%"
  }
  return format;
}

// Without the domain.
std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return {host, std::find(host, host + std::strlen(host), '.')};
}

timespec now() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return time;
}

// Set once, before the first line in this format.
std::atomic<const LogLines*> the_lines{nullptr};

std::string line_of(LogLevel level, LogTopic topic, const std::string& message) {
  const LogLines& lines = *the_lines.load(std::memory_order_acquire);
  if (!lines.shows(level, topic)) return {};
  constexpr const char* names[] = {"WARN", "WARN", "INFO", "TRACE"};
  return fmt::format("{}{}:{}:{} [{}] NCCL {} {}", lines.stamp(level, now()), host_name(), getpid(),
                     syscall(SYS_gettid), place_of_this_thread().device,
                     names[static_cast<int>(level)], message);
}

// The level of NCCL_DEBUG; 0 for unknown words, which mean silence.
unsigned level_of(const Variables& variables) {
  constexpr std::array words = {Word{"VERSION", version}, Word{"WARN", warn}, Word{"INFO", info},
                                Word{"ABORT", info}, Word{"TRACE", trace}};
  const std::string debug = value_of(variables, "NCCL_DEBUG");
  const auto is_it = [&](const Word& word) { return is_same_word(word.name, debug); };
  const auto* const found = std::find_if(words.begin(), words.end(), is_it);
  return found == words.end() ? 0 : found->bits;
}

}  // namespace

LogLines::LogLines(const Variables& variables)
    : topics_(read_list(value_of(variables, "NCCL_DEBUG_SUBSYS"), topic_words, usual_topics)),
      stamped_(read_list(value_of(variables, "NCCL_DEBUG_TIMESTAMP_LEVELS"), level_words, warn)),
      format_(value_of(variables, "NCCL_DEBUG_TIMESTAMP_FORMAT")) {
  constexpr std::size_t most = 255;
  if (format_.empty() || format_.size() > most) format_ = usual_format;
  std::replace(format_.begin(), format_.end(), '_', ' ');  // unquoted blanks, as in NCCL
}

bool LogLines::shows(LogLevel level, LogTopic topic) const {
  if (level <= LogLevel::warn || topic == LogTopic::all) return true;
  return (topics_ & bit(topic)) != 0;
}

std::string LogLines::stamp(LogLevel level, const timespec& time) const {
  return (stamped_ & bit_of(level)) != 0 ? formatted(time) : std::string();
}

std::string LogLines::stamp_of_version(const timespec& time) const {
  return (stamped_ & version) != 0 ? formatted(time) : std::string();
}

std::string LogLines::formatted(const timespec& time) const {
  tm local{};
  localtime_r(&time.tv_sec, &local);
  char text[512] = "";
  const std::string format = with_fraction(format_, time.tv_nsec);
  if (std::strftime(text, sizeof text, format.c_str(), &local) == 0) {
    static_cast<void>(std::strftime(text, sizeof text, usual_format.data(), &local));
  }
  return text;
}

std::string expand(const std::string& pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    path += pattern[i];
    if (pattern[i] != '%' || i + 1 == pattern.size()) continue;
    const char next = pattern[++i];
    if (next == 'h' || next == 'p' || next == '%') path.pop_back();
    if (next == 'h') {
      path += host_name();
    } else if (next == 'p') {
      path += std::to_string(getpid());
    } else {
      path += next;
    }
  }
  return path;
}

bool log_is_open() { return the_lines.load(std::memory_order_acquire) != nullptr; }

void open_log(const Variables& variables) {
  static std::once_flag once;
  std::call_once(once, [&] {
    const auto* const lines = new LogLines(variables);  // never freed, as the log
    the_lines.store(lines, std::memory_order_release);
    const unsigned level = level_of(variables);
    const std::string file = value_of(variables, "NCCL_DEBUG_FILE");
    if (!log_by(line_of, level > version ? expand(file) : std::string())) log_by(line_of, {});
    if (level == 0) return;
    const std::string text = fmt::format("NCCL version {} answered by Pith", NCCL_VERSION_CODE);
    if (logs(LogLevel::info)) return log(LogLevel::info, text, LogTopic::all);
    log_plain(lines->stamp_of_version(now()) + text);
  });
}

}  // namespace pith::nccl
