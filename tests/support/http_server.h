// A server on this machine for tests of requests: it answers each connection once, with the bytes that it is
// told.
#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace trainer::test {

class HttpServer {
 public:
  // `answer` is called with the head and body of each request and returns all bytes to send; "": nothing is
  // sent, and the connection stays open until the server ends. `pause`: after each byte.
  explicit HttpServer(std::function<std::string(const std::string& request)> answer,
                      std::chrono::milliseconds pause = {})
      : answer_(std::move(answer)), pause_(pause), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    ::listen(listener_, 16);
    socklen_t size = sizeof(address);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { serve(); });
  }
  ~HttpServer() {
    ::shutdown(listener_, SHUT_RDWR);  // ends accept()
    thread_.join();
    for (const int connection : silent_) ::close(connection);
    ::close(listener_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  // The same server under another name, which is another host to a client.
  std::string other_url(const std::string& path = "/") const {
    return "http://localhost:" + std::to_string(port_) + path;
  }
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  static std::string text(int status, const std::string& body, const std::string& headers = "") {
    return "HTTP/1.1 " + std::to_string(status) +
           " Status\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
           headers + "\r\n" + body;
  }

 private:
  void serve() {
    for (int connection = 0; (connection = ::accept(listener_, nullptr, nullptr)) >= 0;) {
      const std::string request = read_request(connection);
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string bytes = answer_(request);
      if (bytes.empty()) {
        silent_.push_back(connection);
        continue;
      }
      for (size_t sent = 0; sent < bytes.size();) {
        const size_t piece = pause_.count() > 0 ? 1 : bytes.size() - sent;
        const ssize_t size = ::send(connection, bytes.data() + sent, piece, MSG_NOSIGNAL);
        if (size <= 0) break;
        std::this_thread::sleep_for(pause_);
        sent += static_cast<size_t>(size);
      }
      ::close(connection);
    }
  }

  static std::string read_request(int connection) {
    std::string request;
    char buffer[4096];
    size_t expected = std::string::npos;
    while (request.size() < expected) {
      const ssize_t size = ::recv(connection, buffer, sizeof(buffer), 0);
      if (size <= 0) break;
      request.append(buffer, static_cast<size_t>(size));
      const size_t head = request.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const size_t length = request.find("Content-Length: ");
      expected = head + 4 + (length < head ? std::stoul(request.substr(length + 16)) : 0);
    }
    return request;
  }

  std::function<std::string(const std::string&)> answer_;
  std::chrono::milliseconds pause_;
  int listener_, port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<int> silent_;
  std::jthread thread_;
};

}  // namespace trainer::test
