#include "model/replaced_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace pith {

namespace {

// Closes the file. False: errno says why.
bool write_all(int file, std::string_view text) {
  constexpr mode_t readable = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
  bool fine = ::fchmod(file, readable) == 0;
  while (fine && !text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    fine = written >= 0 || errno == EINTR;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  const int cause = errno;
  if (::close(file) != 0 && fine) return false;
  errno = cause;
  return fine;
}

}  // namespace

// Through a file beside it: neither a full disk nor the end of the process leaves half a text. Of
// several processes with one path, on whatever hosts, the last one to write is seen.
Error replace_file(const std::string& path, const std::string& text) {
  std::string part = path + ".part.XXXXXX";
  const int file = ::mkostemp(part.data(), O_CLOEXEC);
  if (file < 0) return system_error(path, errno);
  if (write_all(file, text) && std::rename(part.c_str(), path.c_str()) == 0) return {};
  const int cause = errno;
  ::unlink(part.c_str());
  return system_error(path, cause);
}

}  // namespace pith
