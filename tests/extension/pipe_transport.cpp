// Ranks of one host that are connected by pipes: the example of transport/ADDING.md.
//
// Each rank has one pipe for what each peer sends. The peer opens its end through /proc, so both
// must belong to one user. Writing to a pipe whose reader has gone raises SIGPIPE, which the
// program has to ignore.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "transport/socket.hpp"
#include "transport/transport_factory.hpp"

namespace pith {

namespace {

// In place of a message's header: the rank leaves.
constexpr std::uint8_t goodbye_version = 0;

class PipeTransport final : public PeerTransport {
 public:
  explicit PipeTransport(const TransportSite& site)
      : scheduler_(site.scheduler), mailbox_(site.mailbox), rank_(site.rank) {
    for (int rank = 0; rank < site.ranks; ++rank) peers_.emplace_back().rank = rank;
  }

  // "process:descriptor,descriptor,...", one for each rank.
  Expected<std::string> listen() override;
  Error attach(std::span<const std::string> addresses, std::vector<bool>& attached,
               const Patience& patience) override;
  Error connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                const Patience& patience) override;
  void close(std::uint64_t deadline_ns) override;

  std::string_view name() const override { return "pipe"; }
  bool start(Send& send) override;
  std::size_t slot_bytes() const override { return std::size_t{64} << 10; }
  MemoryHandle expose(int, Bytes) override { return {}; }
  std::byte* map(int, MemoryHandle) override { return nullptr; }
  bool progress() override;
  bool busy() const override;
  int descriptor() const override { return -1; }
  bool arm() override { return true; }
  void disarm() override {}
  void quiesce(const CommState& comm, const Error& error) override;
  std::uint64_t heard_from(int peer) const override { return at(peer).heard; }
  void for_each_sending(const std::function<void(const Send&)>& see) const override;

 private:
  struct Peer {
    int rank = -1;
    Descriptor in;
    Descriptor in_for_peer;  // the other end, until the peer has opened it
    Descriptor out;
    Error gone;             // set once it is
    bool reported = false;  // to on_peer_lost
    bool said_goodbye = false;
    std::uint64_t heard = 0;
    // What comes.
    Header header;
    std::size_t header_bytes = 0;
    Mailbox::Incoming* incoming = nullptr;
    // What goes: the rest of a message that was given up half-way, then these.
    std::vector<std::byte> rest;
    std::deque<Send*> sends;
    std::size_t sent = 0;  // of the first
  };
  Peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  const Peer& at(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }

  bool write(Peer& peer);
  bool write_first(Peer& peer);
  void give_up(Peer& peer, Send& send, const Error& error);
  bool read(Peer& peer);
  std::size_t read_some(Peer& peer, std::byte* into, std::size_t bytes);
  void lose(Peer& peer);
  void end_reading(Peer& peer);

  Scheduler& scheduler_;
  Mailbox& mailbox_;
  const int rank_;
  std::vector<Peer> peers_;
};

Expected<std::string> PipeTransport::listen() {
  std::string address = fmt::format("{}:", getpid());
  for (Peer& peer : peers_) {
    int ends[2] = {-1, -1};
    if (peer.rank != rank_ && pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      return system_error("pipe", errno);
    }
    peer.in = Descriptor(ends[0]);
    peer.in_for_peer = Descriptor(ends[1]);
    address += fmt::format("{},", ends[1]);
  }
  return address;
}

Error PipeTransport::attach(std::span<const std::string> addresses, std::vector<bool>& attached,
                            const Patience&) {
  attached.assign(peers_.size(), false);
  for (Peer& peer : peers_) {
    const std::string& address = addresses[static_cast<std::size_t>(peer.rank)];
    std::size_t from = address.find(':');
    const std::string process = address.substr(0, from);
    for (int rank = 0; rank < rank_ && from != std::string::npos; ++rank) {
      from = address.find(',', from + 1);
    }
    if (peer.rank == rank_ || from == std::string::npos) continue;
    const std::string number = address.substr(from + 1, address.find(',', from + 1) - from - 1);
    const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
    peer.out = Descriptor(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
    attached[static_cast<std::size_t>(peer.rank)] = static_cast<bool>(peer.out);
  }
  return {};
}

// All have attached by now, so nobody opens our ends any more.
Error PipeTransport::connect(std::span<const std::string>, std::span<const std::uint8_t> use,
                             const Patience&) {
  for (Peer& peer : peers_) {
    peer.in_for_peer.reset();
    if (use[static_cast<std::size_t>(peer.rank)] != 0) continue;
    peer.in.reset();
    peer.out.reset();
  }
  return {};
}

bool PipeTransport::start(Send& send) {
  Peer& peer = at(send.peer);
  if (peer.gone || !peer.out) {
    send.error = peer.gone ? peer.gone : Error(Code::internal, "no pipe to this rank");
    return true;
  }
  peer.sends.push_back(&send);
  if (peer.sends.size() > 1 || !peer.rest.empty() || !write_first(peer)) return false;
  peer.sends.pop_front();
  return true;
}

// True: all of it has gone.
bool PipeTransport::write_first(Peer& peer) {
  Send& send = *peer.sends.front();
  auto* const header = reinterpret_cast<std::byte*>(&send.header);
  while (peer.sent < sizeof(Header) + send.header.length) {
    const std::size_t head = std::min(peer.sent, sizeof(Header));
    const std::size_t body = peer.sent - head;
    const iovec parts[2] = {{header + head, sizeof(Header) - head},
                            {const_cast<std::byte*>(send.data) + body, send.header.length - body}};
    const ssize_t written = writev(peer.out.get(), parts, 2);
    if (written < 0 && errno == EPIPE) lose(peer);
    if (written < 0) return false;
    peer.sent += static_cast<std::size_t>(written);
  }
  peer.sent = 0;
  return true;
}

bool PipeTransport::write(Peer& peer) {
  bool moved = false;
  while (!peer.rest.empty() && !peer.gone) {
    const ssize_t written = ::write(peer.out.get(), peer.rest.data(), peer.rest.size());
    if (written < 0 && errno == EPIPE) lose(peer);
    if (written < 0) return moved;
    peer.rest.erase(peer.rest.begin(), peer.rest.begin() + written);
    moved = true;
  }
  while (!peer.sends.empty() && write_first(peer)) {
    scheduler_.complete(*peer.sends.front());
    peer.sends.pop_front();
    moved = true;
  }
  return moved;
}

// Of what has gone in part the peer gets the rest, so that it finds the next message.
void PipeTransport::give_up(Peer& peer, Send& send, const Error& error) {
  if (&send == peer.sends.front() && peer.sent != 0) {
    const auto* const header = reinterpret_cast<const std::byte*>(&send.header);
    peer.rest.assign(header, header + sizeof(Header));
    peer.rest.insert(peer.rest.end(), send.data, send.data + send.header.length);
    peer.rest.erase(peer.rest.begin(), peer.rest.begin() + static_cast<std::ptrdiff_t>(peer.sent));
    peer.sent = 0;
  }
  send.error = error;
  scheduler_.complete(send);
}

void PipeTransport::quiesce(const CommState& comm, const Error& error) {
  for (Peer& peer : peers_) {
    for (Send* send : peer.sends) {
      if (send->comm == &comm) give_up(peer, *send, error);
    }
    std::erase_if(peer.sends, [&](const Send* send) { return send->comm == &comm; });
  }
}

// Nothing goes to it any more; what it had sent may still be read.
void PipeTransport::lose(Peer& peer) {
  if (peer.gone) return;
  peer.gone = peer.said_goodbye ? peer_left(peer.rank) : peer_lost(peer.rank, "its pipe has ended");
  for (Send* send : peer.sends) {
    send->error = peer.gone;
    scheduler_.complete(*send);
  }
  peer.sends.clear();
  peer.rest.clear();
}

void PipeTransport::end_reading(Peer& peer) {
  peer.in.reset();
  lose(peer);
  if (peer.incoming) mailbox_.abandon(*std::exchange(peer.incoming, nullptr), peer.gone);
}

// How much has come; 0: nothing for now, or nothing ever.
std::size_t PipeTransport::read_some(Peer& peer, std::byte* into, std::size_t bytes) {
  const ssize_t got = ::read(peer.in.get(), into, bytes);
  if (got == 0 && bytes != 0) end_reading(peer);
  if (got <= 0) return 0;
  peer.heard += static_cast<std::size_t>(got);
  return static_cast<std::size_t>(got);
}

// One turn takes a little of it: other peers have theirs.
bool PipeTransport::read(Peer& peer) {
  if (!peer.in || !mailbox_.accepts(peer.rank)) return false;
  if (!peer.incoming) {
    auto* const header = reinterpret_cast<std::byte*>(&peer.header);
    const std::size_t got =
        read_some(peer, header + peer.header_bytes, sizeof(Header) - peer.header_bytes);
    peer.header_bytes += got;
    if (peer.header_bytes < sizeof(Header)) return got != 0;
    if (peer.header.version == goodbye_version) {
      peer.header_bytes = 0;
      return peer.said_goodbye = true;
    }
    peer.incoming = &mailbox_.begin(peer.rank, peer.header);  // if it throws: again next time
    peer.header_bytes = 0;
  }
  Mailbox::Incoming& incoming = *peer.incoming;
  std::byte unwanted[4096];
  const std::size_t left = incoming.header.length - incoming.arrived;
  std::byte* const into = incoming.data ? incoming.data + incoming.arrived : unwanted;
  incoming.arrived += read_some(peer, into, incoming.data ? left : std::min(left, sizeof unwanted));
  if (!peer.incoming || incoming.arrived < incoming.header.length) return peer.in && left != 0;
  peer.incoming = nullptr;
  mailbox_.finish(incoming);
  return true;
}

bool PipeTransport::progress() {
  bool moved = false;
  for (Peer& peer : peers_) {
    moved |= write(peer);
    moved |= read(peer);
    if (!peer.gone || peer.reported || peer.in || !mailbox_.awaited(peer.rank)) continue;
    peer.reported = moved = true;
    if (on_peer_lost) on_peer_lost(peer.rank, peer.gone);
  }
  return moved;
}

bool PipeTransport::busy() const {
  return std::ranges::any_of(peers_, [this](const Peer& peer) {
    return !peer.sends.empty() || !peer.rest.empty() || mailbox_.awaited(peer.rank);
  });
}

void PipeTransport::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const Peer& peer : peers_) {
    for (const Send* send : peer.sends) see(*send);
  }
}

void PipeTransport::close(std::uint64_t deadline_ns) {
  const auto sends = [](const Peer& peer) { return !peer.sends.empty() || !peer.rest.empty(); };
  while (std::ranges::any_of(peers_, sends) && monotonic_ns() < deadline_ns) progress();
  Header goodbye;
  goodbye.version = goodbye_version;
  for (Peer& peer : peers_) {
    if (peer.out && !peer.gone && !sends(peer)) {
      [[maybe_unused]] const auto said = ::write(peer.out.get(), &goodbye, sizeof goodbye);
    }
    peer.said_goodbye = true;  // whoever sends now learns that this is over
    end_reading(peer);
    peer.out.reset();
  }
}

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  std::unique_ptr<PeerTransport> made = std::make_unique<PipeTransport>(site);
  return made;
}

}  // namespace

extern const TransportFactory pipe_factory;
constinit const TransportFactory pipe_factory = {
    .name = "pipe",
    .medium = Medium::sockets,
    .descriptors_per_peer = 1,
    .make = make,
    .usable = [](const ListenPlace&) -> Expected<std::string> {
      return std::string("ranks of one host and one user, through pipes");
    },
};

}  // namespace pith
