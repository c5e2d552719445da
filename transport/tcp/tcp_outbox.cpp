#include "transport/tcp/tcp_outbox.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pith {
namespace {

// After so many short messages the stream for long ones is left again.
constexpr unsigned short_run = 32;

// iovec has no const, as it serves reading too.
void* writable(const void* data) { return const_cast<void*>(data); }

std::span<const iovec> frame_rest(std::array<iovec, 2>& out, const MessageOpening& opening,
                                  std::size_t opening_bytes, const std::byte* payload,
                                  std::size_t size, std::size_t done) {
  std::size_t count = 0;
  if (done < opening_bytes) {
    const auto* raw = reinterpret_cast<const std::byte*>(&opening);
    out[count++] = {writable(raw + done), opening_bytes - done};
    done = opening_bytes;
  }
  if (done < size) out[count++] = {writable(payload + (done - opening_bytes)), size - done};
  return {out.data(), count};
}

}  // namespace

MessageOpening whole_opening(const Header& header) {
  MessageOpening opening;
  opening.frame.bytes = header.length;
  opening.header = header;
  return opening;
}

TcpOutgoing& TcpOutgoingPool::take(Send& send) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<TcpOutgoing>());
    spare_.reserve(all_.capacity());
    spare_.push_back(all_.back().get());
  }
  TcpOutgoing& outgoing = *spare_.back();
  spare_.pop_back();
  outgoing.send = &send;
  outgoing.header = send.header;
  outgoing.data = send.data;
  outgoing.cut = outgoing.written = 0;
  outgoing.next = nullptr;
  return outgoing;
}

void TcpOutgoingPool::give(TcpOutgoing& outgoing) {
  outgoing.copy.reset();
  spare_.push_back(&outgoing);
}

void TcpWriter::load(const MessageOpening& opening, std::size_t opening_bytes,
                     TcpOutgoing* outgoing, std::size_t offset, std::size_t bytes) {
  opening_ = opening;
  opening_bytes_ = opening_bytes;
  outgoing_ = outgoing;
  offset_ = offset;
  size_ = opening_bytes + bytes;
  done_ = 0;
}

std::span<const iovec> TcpWriter::rest() {
  const std::byte* payload = size_ != opening_bytes_ ? outgoing_->data + offset_ : nullptr;
  return frame_rest(iovecs_, opening_, opening_bytes_, payload, size_, done_);
}

bool TcpWriter::wrote(std::size_t bytes) {
  done_ += bytes;
  if (done_ < size_) return false;
  if (outgoing_) outgoing_->written += size_ - opening_bytes_;
  clear();
  return true;
}

TcpOutgoing& TcpOutbox::take(Send& send) {
  TcpOutgoing& outgoing = pool_.take(send);
  ++pending_;
  ++waited_;
  return outgoing;
}

void TcpOutbox::push(Send& send) {
  TcpOutgoing& outgoing = take(send);
  outgoing.stream = plan_stream(send.header);
  if (queue_tail_) {
    queue_tail_->next = &outgoing;
  } else {
    queue_ = &outgoing;
  }
  queue_tail_ = &outgoing;
}

void TcpOutbox::push_rest(Send& send, const MessageOpening& opening, std::size_t written) {
  TcpOutgoing& outgoing = take(send);
  begun_.push_back(&outgoing);
  TcpWriter& writer = writers_[static_cast<std::size_t>(opening_stream_)];
  writer.load(opening, sizeof opening, &outgoing, 0, send.header.length);
  writer.wrote(written);
}

std::span<const iovec> TcpOutbox::next(int stream) {
  if (pending_ == 0 || !load(stream)) return {};
  return writers_[static_cast<std::size_t>(stream)].rest();
}

// Where a message begins; to be called in the order of messages.
int TcpOutbox::plan_stream(const Header& header) {
  if (cuts()) return 0;
  short_in_turn_ = is_long(header) ? 0 : short_in_turn_ + 1;
  if (is_long(header)) planned_stream_ = cutting_.long_stream;
  if (short_in_turn_ > short_run) planned_stream_ = 0;
  return planned_stream_;
}

int TcpOutbox::stream_at_once(const Header& header) {
  const bool returns = planned_stream_ != 0 && short_in_turn_ >= short_run;
  if (!empty() || is_long(header) || returns || planned_stream_ != opening_stream_) return -1;
  return plan_stream(header);
}

bool TcpOutbox::load(int stream) {
  TcpWriter& writer = writers_[static_cast<std::size_t>(stream)];
  if (!writer.idle()) return true;
  const bool may_open = queue_ && (!cuts() || !is_long(queue_->header) ||
                                   shared_.size() < static_cast<std::size_t>(sharing_max));
  if (stream == opening_stream_ && may_open) {
    if (queue_->stream == stream) {
      load_message(writer);
    } else {
      load_move(writer, queue_->stream);
    }
  } else if (!shared_.empty()) {
    load_piece(writer);
  } else {
    return false;
  }
  return true;
}

void TcpOutbox::load_move(TcpWriter& writer, int to) {
  MessageOpening opening;
  opening.frame.type = FrameType::move;
  opening.frame.message = static_cast<std::uint32_t>(to);
  writer.load(opening, sizeof opening.frame, nullptr, 0, 0);
  opening_stream_ = to;
  ++moves_;
  ++pending_;
}

void TcpOutbox::load_message(TcpWriter& writer) {
  TcpOutgoing& outgoing = *queue_;
  queue_ = outgoing.next;
  if (!queue_) queue_tail_ = nullptr;
  begun_.push_back(&outgoing);
  MessageOpening opening = whole_opening(outgoing.header);
  if (cuts() && is_long(outgoing.header)) {
    outgoing.message = messages_++;
    opening.frame.type = FrameType::large;
    opening.frame.message = outgoing.message;
    opening.frame.bytes = static_cast<std::uint32_t>(
        std::min<std::size_t>(cutting_.piece_bytes, outgoing.header.length));
    if (opening.frame.bytes < outgoing.header.length) shared_.push_back(&outgoing);
  }
  outgoing.cut = opening.frame.bytes;
  writer.load(opening, sizeof opening, &outgoing, 0, outgoing.cut);
}

void TcpOutbox::load_piece(TcpWriter& writer) {
  TcpOutgoing& outgoing = *shared_.front();
  const std::size_t left = outgoing.header.length - outgoing.cut;
  const std::size_t bytes = std::min(cutting_.piece_bytes, left);
  MessageOpening opening;
  opening.frame.type = FrameType::piece;
  opening.frame.bytes = static_cast<std::uint32_t>(bytes);
  opening.frame.message = outgoing.message;
  opening.frame.offset = static_cast<std::uint32_t>(outgoing.cut);
  writer.load(opening, sizeof opening.frame, &outgoing, outgoing.cut, bytes);
  outgoing.cut += bytes;
  if (bytes == left) shared_.erase(shared_.begin());
}

Send* TcpOutbox::wrote(int stream, std::size_t bytes) {
  TcpWriter& writer = writers_[static_cast<std::size_t>(stream)];
  TcpOutgoing* const outgoing = writer.outgoing();
  if (!writer.wrote(bytes)) return nullptr;
  if (!outgoing) {
    --moves_;
    --pending_;
    return nullptr;
  }
  if (outgoing->written < outgoing->header.length) return nullptr;
  std::erase(begun_, outgoing);
  return end(*outgoing);
}

Send* TcpOutbox::end(TcpOutgoing& outgoing) {
  --pending_;
  if (outgoing.send) --waited_;
  pool_.give(outgoing);
  return outgoing.send;
}

void TcpOutbox::quiesce(const CommState* comm, const Error& error, bool connected) {
  auto meant = [&](const TcpOutgoing& outgoing) {
    return !connected || (outgoing.send && (!comm || outgoing.send->comm == comm));
  };
  TcpOutgoing* waiting = std::exchange(queue_, nullptr);
  queue_tail_ = nullptr;
  while (waiting) {
    TcpOutgoing& outgoing = *std::exchange(waiting, waiting->next);
    outgoing.next = nullptr;
    if (meant(outgoing)) {
      outgoing.send->error = error;
      scheduler_.complete(*end(outgoing));
    } else {
      (queue_tail_ ? queue_tail_->next : queue_) = &outgoing;
      queue_tail_ = &outgoing;
    }
  }
  for (TcpOutgoing* outgoing : begun_) {
    if (meant(*outgoing) && outgoing->send) detach(*outgoing, error, connected);
  }
  if (connected) return;
  for (TcpOutgoing* outgoing : begun_) end(*outgoing);
  for (TcpWriter& writer : writers_) writer.clear();
  pending_ -= std::exchange(moves_, 0);
  begun_.clear();
  shared_.clear();
}

void TcpOutbox::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const TcpOutgoing* outgoing : begun_) {
    if (outgoing->send) see(*outgoing->send);
  }
  for (const TcpOutgoing* outgoing = queue_; outgoing; outgoing = outgoing->next) {
    see(*outgoing->send);
  }
}

// Copies the bytes of a begun message, so that their owner may reuse the buffer.
void TcpOutbox::detach(TcpOutgoing& outgoing, const Error& error, bool needed) {
  if (needed && outgoing.header.length != 0) {
    outgoing.copy = std::make_unique_for_overwrite<std::byte[]>(outgoing.header.length);
    std::memcpy(outgoing.copy.get(), outgoing.data, outgoing.header.length);
    outgoing.data = outgoing.copy.get();
  }
  --waited_;
  outgoing.send->error = error;
  scheduler_.complete(*std::exchange(outgoing.send, nullptr));
}

}  // namespace pith
