#include "messages.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <utility>

#include "dtypes.hpp"
#include "errors.hpp"

namespace pith_torch {

namespace {

constexpr std::uint32_t magic = 0x70697468;

void fill(Envelope& envelope, const at::Tensor& memory, int tag) {
  envelope.magic = magic;
  envelope.tag = tag;
  envelope.bytes = memory.nbytes();
  std::snprintf(envelope.type, sizeof envelope.type, "%s", c10::toString(memory.scalar_type()));
  if (envelope.is_short() && envelope.bytes > 0) {
    std::memcpy(envelope.data, memory.data_ptr(), envelope.bytes);
  }
}

c10::DistBackendError failure_of(const std::string& text) {
  return {{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text};
}

// The first failure counts.
void fail_one(Message& message, const std::exception_ptr& failure) {
  if (message.done) return;
  message.failure = failure;
  message.done = true;
}

std::string described(std::uint64_t bytes, const char* type) {
  return std::to_string(bytes) + " bytes of " + type;
}

}  // namespace

Messages::Messages(std::unique_ptr<Communicator> comm, double timeout_s)
    : comm_(std::move(comm)),
      rank_(comm_->rank()),
      size_(comm_->size()),
      timeout_s_(timeout_s),
      asked_(static_cast<std::size_t>(size_)) {}

Deadline Messages::late() const {
  if (timeout_s_ <= 0) return std::nullopt;
  return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(timeout_s_ * 1000));
}

void Messages::give_up(Message& message) {
  {
    const std::lock_guard lock(mutex_);
    if (message.done) return;
    const std::string peer = message.peer < 0 ? "any rank" : "rank " + std::to_string(message.peer);
    std::ostringstream text;
    text << "rank " << rank_ << " has waited " << timeout_s_ << " s for " << peer
         << " in a message with tag " << message.tag;
    fail_one(message, std::make_exception_ptr(failure_of(text.str())));
    std::erase_if(posted_, [&](const MessagePtr& posted) { return posted.get() == &message; });
  }
  comm_->abort();  // ends the requests
}

Messages::~Messages() {
  progress();
  if (flights_.empty()) return;
  comm_->leak();
  static std::list<Flights>& kept = *new std::list<Flights>;  // their requests use the memory
  kept.push_back(std::move(flights_));
}

MessagePtr Messages::send(const at::Tensor& tensor, int to, int tag) {
  auto message = std::make_shared<Message>();
  message->memory = packed(tensor);
  message->peer = to;
  message->tag = tag;
  message->late = late();
  fill(message->envelope, message->memory, tag);
  const std::lock_guard lock(mutex_);
  start_send(message);
  return message;
}

void Messages::start_send(const MessagePtr& message) {
  pithComm_t comm = comm_->get();
  const Envelope& envelope = message->envelope;
  CallGroup group;
  check(pithSend(&envelope, envelope_bytes, pithUint8, message->peer, comm, nullptr));
  if (!envelope.is_short()) {
    check(pithSend(message->memory.data_ptr(), envelope.bytes, pithUint8, message->peer, comm,
                   nullptr));
  }
  flights_.push_back(
      {Flight::Kind::send, message->peer, group.run_in_background(), message, nullptr, {}, false});
}

MessagePtr Messages::receive(const at::Tensor& tensor, int from, int tag) {
  auto message = std::make_shared<Message>();
  message->memory = packed(tensor);
  message->tensor = tensor;
  message->peer = from;
  message->any_source = from < 0;
  message->tag = tag;
  message->late = late();
  const std::lock_guard lock(mutex_);
  post(message);
  return message;
}

void Messages::post(const MessagePtr& message) {
  if (take_unexpected(*message)) return;
  posted_.push_back(message);
  ask_for_envelopes();
}

bool Messages::take_unexpected(Message& message) {
  const auto found = std::find_if(unexpected_.begin(), unexpected_.end(), [&](const Unexpected& u) {
    return (message.any_source || u.peer == message.peer) && u.envelope->tag == message.tag;
  });
  if (found == unexpected_.end()) return false;
  const Unexpected taken = std::move(*found);
  unexpected_.erase(found);
  deliver_kept(message, taken);
  return true;
}

// A receive may have been posted while the data came.
void Messages::keep_or_deliver(Unexpected arrived) {
  const MessagePtr message = take_posted(arrived.peer, *arrived.envelope);
  if (message) return deliver_kept(*message, arrived);
  unexpected_.push_back(std::move(arrived));
}

void Messages::deliver_kept(Message& message, const Unexpected& kept) {
  deliver(message, kept.peer, *kept.envelope);
  if (message.done) return;  // it was short, or does not fit
  std::memcpy(message.memory.data_ptr(), kept.data.data(), kept.data.size());
  finish(message);
}

void Messages::ask_for_envelopes() {
  for (const MessagePtr& message : posted_) {
    if (!message->any_source) {
      ask(message->peer);
      continue;
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) ask(peer);
    }
  }
}

void Messages::ask(int peer) {
  const auto place = static_cast<std::size_t>(peer);
  if (asked_[place]) return;
  auto envelope = std::make_shared<Envelope>();
  CallGroup group;
  check(pithRecv(envelope.get(), envelope_bytes, pithUint8, peer, comm_->get(), nullptr));
  flights_.push_back({Flight::Kind::envelope,
                      peer,
                      group.run_in_background(),
                      nullptr,
                      std::move(envelope),
                      {},
                      false});
  asked_[place] = true;
}

// With the mutex.
void Messages::progress() {
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    const auto current = flight++;
    if (current->waited_for) continue;
    int done = 0;
    const pithResult_t result = pithTest(current->request, &done);
    if (done) land(current, result);
  }
}

// The flight has ended, and what it was for goes on.
void Messages::land(Flights::iterator flight, pithResult_t result) {
  Flight landed = std::move(*flight);
  flights_.erase(flight);
  if (landed.kind != Flight::Kind::send) asked_[static_cast<std::size_t>(landed.peer)] = false;
  try {
    check(result);
    switch (landed.kind) {
      case Flight::Kind::send:
        landed.message->done = true;
        break;
      case Flight::Kind::envelope:
        open(landed.peer, landed.envelope);
        break;
      case Flight::Kind::data:
        finish(*landed.message);
        break;
      case Flight::Kind::dropped:
        break;
      case Flight::Kind::unexpected:
        keep_or_deliver({landed.peer, landed.envelope, std::move(landed.unexpected)});
        break;
    }
  } catch (...) {
    fail(landed, std::current_exception());
  }
  try {
    ask_for_envelopes();
  } catch (...) {
    fail_posted(std::current_exception(), [](const Message&) { return true; });
  }
}

// A receive that can no longer be matched fails, too.
void Messages::fail(Flight& flight, const std::exception_ptr& failure) {
  if (flight.message) return fail_one(*flight.message, failure);
  fail_posted(failure, [&](const Message& posted) {
    return posted.any_source || posted.peer == flight.peer;
  });
}

template <class Concerns>
void Messages::fail_posted(const std::exception_ptr& failure, const Concerns& concerns) {
  std::erase_if(posted_, [&](const MessagePtr& posted) {
    if (!concerns(*posted)) return false;
    fail_one(*posted, failure);
    return true;
  });
}

void Messages::open(int peer, const std::shared_ptr<Envelope>& envelope) {
  TORCH_CHECK(envelope->magic == magic, "rank ", peer,
              " sent something that is no message of "
              "this process group");
  const MessagePtr message = take_posted(peer, *envelope);
  if (message) deliver(*message, peer, *envelope);
  if (envelope->is_short()) {
    if (!message) unexpected_.push_back({peer, envelope, {}});
    return;
  }
  // Data that do not fit are received all the same, because the next envelope is behind them.
  Flight flight{Flight::Kind::dropped, peer, nullptr, nullptr, envelope, {}, false};
  void* where = nullptr;
  if (message && !message->done) {
    flight.kind = Flight::Kind::data;
    flight.message = message;
    where = message->memory.data_ptr();
  } else {
    if (!message) flight.kind = Flight::Kind::unexpected;
    flight.unexpected.resize(envelope->bytes);
    where = flight.unexpected.data();
  }
  CallGroup group;
  check(pithRecv(where, envelope->bytes, pithUint8, peer, comm_->get(), nullptr));
  flight.request = group.run_in_background();
  flights_.push_back(std::move(flight));
  asked_[static_cast<std::size_t>(peer)] = true;
}

MessagePtr Messages::take_posted(int peer, const Envelope& envelope) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const MessagePtr& posted) {
    return (posted->any_source || posted->peer == peer) && posted->tag == envelope.tag;
  });
  if (found == posted_.end()) return nullptr;
  MessagePtr message = *found;
  posted_.erase(found);
  return message;
}

// The receive is matched: it ends at once if the data are in the envelope, or if they do not fit.
void Messages::deliver(Message& message, int peer, const Envelope& envelope) {
  message.peer = peer;
  const std::size_t room = message.memory.nbytes();
  if (room != envelope.bytes) {
    const std::string text = "rank " + std::to_string(peer) + " sent " +
                             described(envelope.bytes, envelope.type) + " with tag " +
                             std::to_string(envelope.tag) + ", the tensor of rank " +
                             std::to_string(rank_) + " has " +
                             described(room, c10::toString(message.memory.scalar_type()));
    fail_one(message, std::make_exception_ptr(failure_of(text)));
    return;
  }
  if (!envelope.is_short()) return;
  if (room > 0) std::memcpy(message.memory.data_ptr(), envelope.data, room);
  finish(message);
}

void Messages::finish(Message& message) {
  const c10::AutoGradMode no_grad(false);
  unpack(message.memory, message.tensor);
  message.done = true;
}

bool Messages::has_ended(const Message& message) const {
  if (!message.done) return false;
  if (message.failure) std::rethrow_exception(message.failure);
  return true;
}

bool Messages::poll(const Message& message) {
  const std::lock_guard lock(mutex_);
  if (!message.done) progress();
  return has_ended(message);
}

// If only one request is in flight, this thread drives it. True: it did.
bool Messages::drive_one(std::unique_lock<std::mutex>& lock) {
  if (flights_.size() != 1 || flights_.front().waited_for) return false;
  const auto flight = flights_.begin();
  flight->waited_for = true;
  lock.unlock();
  const pithResult_t result = pithWait(flight->request);
  lock.lock();
  land(flight, result);
  return true;
}

bool Messages::wait(const Message& message, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (Backoff backoff;;) {
    progress();
    if (has_ended(message)) return true;
    if (deadline && Clock::now() >= *deadline) return false;
    if (!deadline && drive_one(lock)) continue;
    lock.unlock();
    backoff.pause(deadline);
    lock.lock();
  }
}

}  // namespace pith_torch
