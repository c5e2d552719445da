#include "startup/pmi_wire.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "transport/socket.hpp"

namespace pith {

namespace {

constexpr std::size_t line_bytes_max = 4096;
constexpr std::uint64_t goodbye_ns = 1'000'000'000;

// MSG_NOSIGNAL: a launcher that has died is an error, not SIGPIPE. Some launchers pass a pipe.
ssize_t write_quietly(int fd, const char* data, std::size_t bytes) {
  const ssize_t sent = ::send(fd, data, bytes, MSG_NOSIGNAL);
  return sent < 0 && errno == ENOTSOCK ? ::write(fd, data, bytes) : sent;
}

}  // namespace

std::string pmi_field(std::string_view line, std::string_view key) {
  while (!line.empty()) {
    const std::string_view pair = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), pair.size() + 1));
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=') {
      return std::string(pair.substr(key.size() + 1));
    }
  }
  return {};
}

Expected<PmiWire> PmiWire::open(int fd, std::uint64_t deadline_ns) {
  PmiWire wire;
  wire.fd_ = fd;
  const Expected<std::string> hello =
      wire.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline_ns);
  if (!hello) return hello.error();
  if (pmi_field(*hello, "pmi_version") != "1") {
    wire.fd_ = -1;
    return Error(Code::system,
                 fmt::format("the launcher at PMI_FD={} does not speak PMI-1: \"{}\"", fd, *hello));
  }
  const Expected<std::string> space = wire.ask("cmd=get_my_kvsname", "my_kvsname", deadline_ns);
  if (!space) return space.error();
  wire.space_ = pmi_field(*space, "kvsname");
  return wire;
}

PmiWire::PmiWire(PmiWire&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), space_(std::move(other.space_)) {}

PmiWire& PmiWire::operator=(PmiWire&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(space_, other.space_);
  return *this;
}

PmiWire::~PmiWire() {
  if (fd_ >= 0) ask("cmd=finalize", "finalize_ack", monotonic_ns() + goodbye_ns);
}

Error PmiWire::broken(std::string_view what) {
  return {Code::system, fmt::format("PMI exchange with the launcher (PMI_FD={}): {}",
                                    std::exchange(fd_, -1), what)};
}

Expected<std::string> PmiWire::ask(const std::string& question, std::string_view answer,
                                   std::uint64_t deadline_ns) {
  if (fd_ < 0) return broken("an earlier exchange has failed");
  const std::string line = question + "\n";
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t sent = write_quietly(fd_, line.data() + done, line.size() - done);
    if (sent >= 0) {
      done += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!wait_for(fd_, POLLOUT, deadline_ns)) return broken("it takes no question");
    } else if (errno != EINTR) {
      return broken(std::strerror(errno));
    }
  }
  // Byte by byte: bytes after the line belong to the next reader of the descriptor.
  std::string got;
  while (got.size() < line_bytes_max) {
    if (!wait_for(fd_, POLLIN, deadline_ns)) {
      return broken(fmt::format("no answer to \"{}\" within the time allowed", question));
    }
    char byte = 0;
    const ssize_t count = ::read(fd_, &byte, 1);
    if (count == 0) return broken("the launcher has closed it");
    if (count < 0 && errno != EINTR && errno != EAGAIN) return broken(std::strerror(errno));
    if (count <= 0) continue;
    if (byte != '\n') {
      got += byte;
      continue;
    }
    if (pmi_field(got, "cmd") == answer) return got;
    return broken(fmt::format("\"{}\" was answered by \"{}\"", question, got));
  }
  return broken("an answer that is too long");
}

Error PmiWire::put(std::string_view key, std::string_view value, std::uint64_t deadline_ns) {
  const Expected<std::string> done =
      ask(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, value), "put_result",
          deadline_ns);
  if (!done) return done.error();
  if (pmi_field(*done, "rc") == "0") return {};
  return {Code::system, fmt::format("the launcher did not take {}: \"{}\"", key, *done)};
}

Expected<std::string> PmiWire::get(std::string_view key, std::uint64_t deadline_ns) {
  const Expected<std::string> done =
      ask(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result", deadline_ns);
  if (!done) return done.error();
  if (pmi_field(*done, "rc") == "0") return pmi_field(*done, "value");
  return Error(Code::remote, fmt::format("the launcher has no {}: rank 0 has not put it", key));
}

Error PmiWire::barrier(std::uint64_t deadline_ns) {
  const Error error = ask("cmd=barrier_in", "barrier_out", deadline_ns).error();
  if (!error) return {};
  return {Code::remote, fmt::format("waiting for all ranks of the job: {}", error.message())};
}

}  // namespace pith
