// What an engine drives: transports, compute queues, timers.
#pragma once

namespace pith {

class Pollable {
 public:
  virtual ~Pollable() = default;

  // Moves what can move without waiting; true when anything did.
  virtual bool progress() = 0;
  // Whether some operation waits for this source: the engine polls such ones on every turn.
  virtual bool busy() const = 0;

  // Sleeping: `arm` prepares it and returns false where there is work already. While armed, the
  // descriptor becomes readable when there is work (-1: none; the engine then only naps).
  virtual int descriptor() const = 0;
  virtual bool arm() = 0;
  virtual void disarm() = 0;
};

}  // namespace pith
