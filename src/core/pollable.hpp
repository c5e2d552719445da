// What an engine drives: transports, compute queues, timers.
#pragma once

namespace pith {

class Pollable {
 public:
  // Where it looks for work; asking the kernel takes as long as passing the core on.
  enum class Looks : unsigned char { into_memory, into_kernel };

  explicit Pollable(Looks looks = Looks::into_memory) : looks_(looks) {}
  virtual ~Pollable() = default;
  bool asks_kernel() const { return looks_ == Looks::into_kernel; }

  // Does what can be done without waiting; true if anything was done.
  virtual bool progress() = 0;
  // Whether an operation waits for this source; the engine then polls it on every turn.
  virtual bool busy() const = 0;

  // For the engine's sleep. arm() prepares the descriptor, which becomes readable when there is
  // work; it returns false if there is work already. -1: no descriptor; the engine then polls
  // between naps.
  virtual int descriptor() const = 0;
  virtual bool arm() = 0;
  virtual void disarm() = 0;

 private:
  const Looks looks_;
};

}  // namespace pith
