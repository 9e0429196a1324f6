// A bootstrap over MPI, for ranks on any number of nodes. A component of its own, cuvmm::mpi: the only one that needs
// MPI.
#pragma once

#include <memory>

#include "cuvmm/team/bootstrap.hpp"

namespace cuvmm::team {

// All ranks of an MPI communicator. The program initialises MPI before, and finalises it after the last object is gone;
// if other threads use MPI at the same time, it asks for MPI_THREAD_MULTIPLE. Each operation is a non-blocking
// collective of MPI, asked for its end until the deadline.
//
// MPI cannot tell that a rank has ended, and OpenMPI 4.1 then ends the job: what is told of is the deadline, TimedOut.
// Its reason names the ranks from which this one has heard nothing: who waits for more than a moment says so to all
// others. A collective that has not come to its end cannot be cancelled, so that its buffers stay until the process
// ends, and the bootstrap cannot be used any more. A new one can be made of the same communicator.
//
// One thread at a time uses an object.
class MpiBootstrap final : public Bootstrap {
 public:
  // Of MPI_COMM_WORLD, which is duplicated (MPI_Comm_idup): what the program itself sends is never mixed up with this.
  // Throws InvalidUse unless MPI is initialised and not finalised, TimedOut.
  [[nodiscard]] static std::unique_ptr<MpiBootstrap> world(const Deadline& deadline);
  // Of another one, as MPI_Comm_c2f(communicator) answers it.
  [[nodiscard]] static std::unique_ptr<MpiBootstrap> of(int communicator, const Deadline& deadline);

  MpiBootstrap(const MpiBootstrap&) = delete;
  MpiBootstrap& operator=(const MpiBootstrap&) = delete;
  MpiBootstrap(MpiBootstrap&&) = delete;
  MpiBootstrap& operator=(MpiBootstrap&&) = delete;
  // Frees the duplicate, which waits for nobody.
  ~MpiBootstrap() override;

  [[nodiscard]] int rank() const noexcept override;
  [[nodiscard]] int size() const noexcept override;

  // At most 64 MiB from a rank, and 2 GiB in all: InvalidUse for more.
  [[nodiscard]] Result<Contributions> try_allgather(std::string_view step, std::span<const std::byte> mine,
                                                    const Deadline& deadline) override;
  [[nodiscard]] Result<void> try_barrier(std::string_view step, const Deadline& deadline) override;

 private:
  class Impl;
  explicit MpiBootstrap(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::team
