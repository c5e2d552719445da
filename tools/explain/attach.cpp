#include "attach.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <span>

#include "control/control_frames.hpp"
#include "control/tcp/control_tcp.hpp"
#include "follow.hpp"
#include "startup/job_secret.hpp"
#include "startup/launch.hpp"
#include "startup/unique_id.hpp"
#include "tools/files.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"

namespace pith_explain {

using namespace pith;

namespace {

constexpr std::uint64_t patience_ns = 10'000'000'000;  // to connect, and for the first record

Expected<Secret> secret_of_id(const std::string& path) {
  const Expected<std::string> text = pith_tools::read_file(path);
  if (!text) return text.error();
  if (text->size() != UniqueId::bytes) {
    return Error(Code::invalid_argument,
                 fmt::format("--id is {}, a file of {} bytes, expected the {} of a pithUniqueId",
                             path, text->size(), UniqueId::bytes));
  }
  const Expected<UniqueId> id =
      UniqueId::load(std::span<const char, UniqueId::bytes>(text->data(), UniqueId::bytes));
  if (!id)
    return Error(id.error().code(), fmt::format("--id is {}: {}", path, id.error().message()));
  return id->secret;
}

// As a rank would find it.
Expected<Secret> secret_of_environment() {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  const Expected<Launch> launch =
      read_launch(variables_from_environment(launch_variables()), *settings);
  if (!launch || launch->way != Launch::Way::address) {
    return Error(Code::invalid_usage,
                 fmt::format("--attach needs the job's secret: expected --id FILE, or a rank's "
                             "environment{}{}",
                             launch ? ", which this launcher's does not hold" : ": ",
                             launch ? "" : launch.error().message()));
  }
  const Expected<std::string> text = secret_text(*settings);
  if (!text) return text.error();
  return derive_secret(*text, launch->job);
}

Expected<Descriptor> connect(const Attachment& to) {
  const Expected<Secret> secret =
      to.id_file.empty() ? secret_of_environment() : secret_of_id(to.id_file);
  if (!secret) return secret.error();
  const Expected<Address> address = parse_address(to.address);
  if (!address) {
    return Error(Code::invalid_argument,
                 fmt::format("--attach is {}, expected HOST:PORT as rank 0 logs it with "
                             "PITH_LOG=info, numeric",
                             to.address));
  }
  const Patience patience(monotonic_ns() + patience_ns);
  Expected<Descriptor> socket = connect_to(*address, patience);
  if (!socket) return socket;
  constexpr int whom = ControlTcp::observer;
  Handshake handshake = Handshake::connector(*secret, {"control", whom, 0, whom, 0});
  if (Error error = shake_hands(handshake, socket->get(), patience)) return error;
  return socket;
}

// Records as they come.
class Records {
 public:
  explicit Records(Descriptor socket) : socket_(std::move(socket)) {}

  // Waits for the next one; empty: the job has hung up.
  Expected<std::string> next(std::uint64_t until_ns) {
    while (true) {
      std::string_view message;
      const ControlFrames::What what = frames_.next(message);
      if (what == ControlFrames::What::message) return std::string(message);
      if (what != ControlFrames::What::nothing) return std::string();
      if (!wait_for(socket_.get(), POLLIN, until_ns)) {
        return Error(Code::remote, "nothing was told in 10 s: its communicator may have ended");
      }
      char buffer[16384];
      const ssize_t got = ::recv(socket_.get(), buffer, sizeof buffer, 0);
      if (got > 0) frames_.arrived({buffer, static_cast<std::size_t>(got)});
      const bool again = got < 0 && (errno == EAGAIN || errno == EINTR);
      if (got <= 0 && !again) return std::string();
    }
  }

 private:
  Descriptor socket_;
  ControlFrames frames_;
};

}  // namespace

Error attach(const Attachment& to) {
  Expected<Descriptor> socket = connect(to);
  if (!socket) return socket.error();
  Records records(std::move(*socket));
  for (bool any = false;; any = true) {
    constexpr std::uint64_t for_ever = ~std::uint64_t{0};
    const Expected<std::string> text = records.next(any ? for_ever : monotonic_ns() + patience_ns);
    if (!text) return text.error();
    if (text->empty() && any) return {};
    if (text->empty()) {
      return {Code::remote, fmt::format("{} hung up before it told anything", to.address)};
    }
    const Expected<ChoiceRecord> record = read_choices(*text, to.address);
    if (!record) return record.error();
    print(*record);
    if (record->ended) return {};
  }
}

}  // namespace pith_explain
