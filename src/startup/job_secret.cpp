#include "startup/job_secret.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/log.hpp"
#include "transport/socket.hpp"

namespace pith {

namespace {

constexpr std::size_t file_bytes_max = 4096;

Expected<std::string> read_file(const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    return Error(
        Code::invalid_argument,
        fmt::format("PITH_SECRET_FILE is \"{}\", expected a readable file with a secret of "
                    "up to {} bytes: {}",
                    path, file_bytes_max, what));
  };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return refuse(std::strerror(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return refuse("it is no regular file");
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    log(LogLevel::warn, fmt::format("PITH_SECRET_FILE {} can be read by other users", path));
  }
  std::string text(file_bytes_max + 1, '\0');
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return refuse(std::strerror(errno));
  text.resize(static_cast<std::size_t>(got));
  if (text.size() > file_bytes_max) return refuse("it is longer");
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty()) return refuse("it is empty");
  return text;
}

}  // namespace

Expected<std::string> secret_text(const Settings& settings) {
  if (settings.secret_file.empty()) return settings.secret;
  if (!settings.secret.empty()) {
    return Error(Code::invalid_argument,
                 "PITH_SECRET and PITH_SECRET_FILE are both set, expected one of them");
  }
  return read_file(settings.secret_file);
}

Secret derive_secret(std::string_view text, std::string_view job) {
  const std::string message = fmt::format("pith job secret 1\n{}", job);
  return derive(std::as_bytes(std::span(text)), std::as_bytes(std::span(message)));
}

}  // namespace pith
