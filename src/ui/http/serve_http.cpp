#include <cerrno>
#include <chrono>
#include <httplib.h>
#include <memory>
#include <sys/socket.h>
#include <thread>

#include "ui/http/http_job.h"

namespace trainer::ui {
namespace {

using httplib::Request;
using httplib::Response;
using httplib::Server;

constexpr const char* kHere = "127.0.0.1";

HttpRequest request_of(const Request& given) {
  HttpRequest request{
      given.method, given.path, given.get_header_value("Host"), given.get_header_value("Origin"),
      {},           given.body};
  for (const auto& [name, value] : given.params) request.query.emplace(name, value);
  return request;
}

void fill(Response& response, HttpResponse given) {
  if (given.status != 200) response.status = given.status;  // 200 is its own, or 206 for a part (Range)
  for (const auto& [name, value] : given.headers) response.set_header(name, value);
  if (given.stream) {
    response.set_chunked_content_provider(
        given.type, [stream = std::move(given.stream)](size_t, httplib::DataSink& sink) {
          stream([&](std::string_view piece) { return sink.write(piece.data(), piece.size()); });
          sink.done();
          return true;
        });
  } else if (given.body.empty()) {
    response.set_content("", given.type);
  } else {
    // By a provider, because the library would compress a body of its own, which takes longer than to send
    // it.
    const auto body = std::make_shared<const std::string>(std::move(given.body));
    response.set_content_provider(body->size(), given.type,
                                  [body](size_t offset, size_t length, httplib::DataSink& sink) {
                                    return sink.write(body->data() + offset, length);
                                  });
  }
}

void set_up(Server& server, HttpJob& job) {
  server.new_task_queue = [] { return new httplib::ThreadPool(kMostThreads); };
  // Without this another program could listen on the same port, and get some of our requests.
  server.set_socket_options([](int socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
  // What keeps a thread of the server after a request: this is how long its end takes at most.
  server.set_keep_alive_timeout(1);
  server.set_keep_alive_max_count(1000);
  server.set_read_timeout(5);
  server.set_write_timeout(20);
  server.set_payload_max_length(kMostBytesOfBody);
  server.set_tcp_nodelay(true);
  // All is decided here, or in the one handler for requests with a body: what it looks for in a path is a
  // pattern of its own, which takes a stack of the path's length.
  server.set_pre_routing_handler([&job](const Request& given, Response& response) {
    HttpResponse refusal;
    if (job.refuse(request_of(given), refusal)) {
      refusal.headers.emplace_back("Connection", "close");  // its body is not read
      fill(response, std::move(refusal));
      return Server::HandlerResponse::Handled;
    }
    if (given.method == "POST") return Server::HandlerResponse::Unhandled;
    fill(response, job.answer(request_of(given)));
    return Server::HandlerResponse::Handled;
  });
  server.Post(".*", [&job](const Request& given, Response& response) {
    fill(response, job.answer(request_of(given)));
  });
}

}  // namespace
}  // namespace trainer::ui

int trainer_serve_http(trainer::ui::HttpJob& job) {
  using namespace trainer::ui;
  httplib::Server server;
  set_up(server, job);
  errno = 0;
  if (job.port == 0) {
    job.port = server.bind_to_any_port(kHere);
    if (job.port <= 0) return errno != 0 ? errno : EADDRNOTAVAIL;
  } else if (!server.bind_to_port(kHere, job.port)) {
    return errno != 0 ? errno : EADDRINUSE;
  }
  job.listening(job.port, [&server] {
    // It can be stopped only once it has begun, which it does right after this call.
    for (int i = 0; i < 1000 && !server.is_running(); i++)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server.stop();
  });
  server.listen_after_bind();
  return 0;
}
